// What a fixed camera sees of Gaussians that never move, worked out once: per block of 4x4 pixels the splats that can matter
// whatever moves before them, front to back, and the picture of them alone. Movers are then merged into the lists of the blocks
// that they touch, and only these are blended again. Bit for bit the picture of everything drawn anew.
#pragma once

#include <cstdint>
#include <vector>

#include "block.h"
#include "movers.h"
#include "pool.h"
#include "raster.h"

namespace recon {

// A camera's colour response, shown = matrix colour + offset.
struct Response {
  float matrix[9], offset[3];
  bool given;
};

// Where pictures of one environment go; each may be null. bytes: round(255 clamp(response of the colour)).
struct Canvas {
  uint8_t* bytes;  // [height,width,3]
  float* color;    // [height,width,3]
  float* alpha;    // [height,width]
  float* depth;    // [height,width]
};

// shown = response of color, cut to [0, 1], rounded to bytes.
void ToBytes(const Response& response, const float color[3], uint8_t bytes[3]);

class Backdrop {
 public:
  Backdrop(const Gaussians& still, const Camera& camera, const Options& options, const float background[3],
           const Response& response);

  // One world: its movers as this camera sees them. Safe to call from several threads.
  void Draw(const Gaussians& movers, const Canvas& to) const;

  const Camera& camera() const { return camera_; }
  size_t kept() const { return splats_.size(); }
  size_t items() const { return items_.size(); }

 private:
  struct Kept;
  void KeepTile(const ViewState& state, uint32_t tile, Kept& kept);
  void Compact(const ViewState& state, const std::vector<Kept>& kept);
  BlockPlace PlaceOf(uint32_t block) const;
  void Write(uint32_t block, const BlockPixels& px, const Canvas& to) const;
  void Copy(const Canvas& to) const;

  Camera camera_;
  Options options_;
  AlphaLimits limits_;
  float background_[3];
  Response response_;
  uint32_t tiles_x_, tiles_y_;
  Buffer<Splat> splats_;         // that matter, front to back
  std::vector<uint32_t> starts_; // [blocks + 1]; block 16 t + b is number b of tile t
  Buffer<uint32_t> items_;       // block after block, each front to back
  Buffer<float> color_, alpha_, depth_;
  Buffer<uint8_t> bytes_;
};

}  // namespace recon
