// Rows of floats that belong to kLanes Gaussians, as vectors with one lane per Gaussian, and back.
//
// A gather costs a load per lane and more; four floats of every row, turned in registers, cost a third of that.
#if defined(RECON_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RECON_ROWS_INL_H_
#undef RECON_ROWS_INL_H_
#else
#define RECON_ROWS_INL_H_
#endif

#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

// Which row each lane holds: the first `filled` lanes count, the others repeat the last of them.
struct Rows {
  HWY_ALIGN int32_t row[kTile];
  uint32_t filled;
  bool together;  // all lanes filled, rows one after the other
};

template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const float* base, const int32_t* row, size_t stride) {
  if constexpr (hn::MaxLanes(d) > 4) {  // blocks of four lanes: rows 0, 4, 8, 12
    const hn::Half<D> half;
    const int32_t* const upper = row + hn::MaxLanes(d) / 2;
    return hn::Combine(d, LoadBlocks(half, base, upper, stride), LoadBlocks(half, base, row, stride));
  } else {
    return hn::LoadU(d, base + static_cast<size_t>(row[0]) * stride);
  }
}

template <class D>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> v, float* base, const int32_t* row, size_t stride) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    StoreBlocks(half, hn::LowerHalf(half, v), base, row, stride);
    StoreBlocks(half, hn::UpperHalf(half, v), base, row + hn::MaxLanes(d) / 2, stride);
  } else {
    hn::StoreU(v, d, base + static_cast<size_t>(row[0]) * stride);
  }
}

// In every block of four lanes, the 4x4 matrix v[0..3] transposed.
HWY_INLINE void Transpose4(V v[4]) {
  const hn::Repartition<uint64_t, Floats> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(kF, v[0], v[1]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(kF, v[0], v[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(kF, v[2], v[3]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(kF, v[2], v[3]));
  v[0] = hn::BitCast(kF, hn::InterleaveLower(d64, low01, low23));
  v[1] = hn::BitCast(kF, hn::InterleaveUpper(d64, low01, low23));
  v[2] = hn::BitCast(kF, hn::InterleaveLower(d64, high01, high23));
  v[3] = hn::BitCast(kF, hn::InterleaveUpper(d64, high01, high23));
}

// out[j], lane k = base[row[k] stride + j], j = 0..3.
HWY_INLINE void LoadColumns4(const float* base, const int32_t* row, size_t stride, V out[4]) {
  for (int j = 0; j < 4; ++j) out[j] = LoadBlocks(kF, base, row + j, stride);
  Transpose4(out);
}

// The reverse, all lanes; v is spent.
HWY_INLINE void StoreColumns4(V v[4], float* base, const int32_t* row, size_t stride) {
  Transpose4(v);
  for (int j = 0; j < 4; ++j) StoreBlocks(kF, v[j], base, row + j, stride);
}

HWY_INLINE VI RowIndex(const Rows& rows) { return hn::Load(kI, rows.row); }

// One lane per row of a table [n], [n,3] or [n,4].
HWY_INLINE V Load1(const float* table, const Rows& rows) {
  return rows.together ? hn::LoadU(kF, table + rows.row[0]) : hn::GatherIndex(kF, table, RowIndex(rows));
}
HWY_INLINE Vec3 Load3(const float* table, const Rows& rows) {
  Vec3 v;
  if (rows.together) {
    hn::LoadInterleaved3(kF, table + 3 * static_cast<size_t>(rows.row[0]), v.x, v.y, v.z);
    return v;
  }
  const VI row = RowIndex(rows), at = hn::Add(hn::Add(row, row), row);
  return {hn::GatherIndex(kF, table, at), hn::GatherIndex(kF, table + 1, at), hn::GatherIndex(kF, table + 2, at)};
}

// Writes (or adds) the filled lanes of `columns` vectors to rows of `columns` floats.
template <size_t kColumns>
HWY_INLINE void StoreRows(const V (&v)[kColumns], float* table, const Rows& rows, bool add) {
  if (rows.together && !add) {
    float* const to = table + kColumns * static_cast<size_t>(rows.row[0]);
    if constexpr (kColumns == 1) return hn::StoreU(v[0], kF, to);
    if constexpr (kColumns == 2) return hn::StoreInterleaved2(v[0], v[1], kF, to);
    if constexpr (kColumns == 3) return hn::StoreInterleaved3(v[0], v[1], v[2], kF, to);
    if constexpr (kColumns == 4) return hn::StoreInterleaved4(v[0], v[1], v[2], v[3], kF, to);
  }
  HWY_ALIGN float lanes[kColumns][kTile];
  for (size_t c = 0; c < kColumns; ++c) hn::Store(v[c], kF, lanes[c]);
  for (uint32_t k = 0; k < rows.filled; ++k) {
    float* const to = table + kColumns * static_cast<size_t>(rows.row[k]);
    for (size_t c = 0; c < kColumns; ++c) to[c] = add ? to[c] + lanes[c][k] : lanes[c][k];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#endif  // RECON_ROWS_INL_H_
