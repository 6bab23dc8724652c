// The whole rasteriser: many views of one set of Gaussians, forward and backward.
#pragma once

#include <cstdint>
#include <vector>

#include "bin.h"
#include "blend.h"
#include "pool.h"
#include "project.h"
#include "splat.h"

namespace recon {

// Milliseconds spent per stage, summed over the views.
struct Timings {
  double project = 0.0, bin = 0.0, blend = 0.0;
  double blend_backward = 0.0, project_backward = 0.0;
};

// A camera from a row-major 4x4 cam_from_world and a 3x3 pinhole matrix.
Camera MakeCamera(const float* viewmat, const float* intrinsics, int width, int height);

// What the backward pass needs of one view.
struct ViewState {
  Camera camera;
  Buffer<Splat> splats;                // blocks of kBlock, the first block_counts[b] filled
  std::vector<uint32_t> block_counts;
  TileLists lists;
  Buffer<uint16_t> visited;  // of BlendTile
};

// Fills the splats and block counts of `state`, whose camera and splats [n] are there.
void ProjectView(const Gaussians& gaussians, const Options& options, ViewState& state, const ProjectionAux& aux);

// Draws a view that is projected and binned; `background` [3] or null.
void BlendView(const ViewState& state, const Options& options, const float* background, const Picture& out);

struct ForwardArguments {
  Gaussians gaussians;
  Options options;
  std::vector<Camera> cameras;
  const float* background;   // [views,3] or null
  const uint8_t* tile_mask;  // [views,tiles_y,tiles_x] or null
  bool keep;                 // fill `states`
};

// Outputs of all views, each picture [views,height,width,...]; aux pointers [views,n,...] or null.
struct ForwardOutputs {
  Picture picture;
  ProjectionAux aux;
};

void RasterForward(const ForwardArguments& args, const ForwardOutputs& out, std::vector<ViewState>* states, Timings* timings);

struct BackwardOutputs {
  GaussianGradient gaussians;  // overwritten
  float* viewmats;             // [views,4,4], overwritten
  float* background;           // [views,3], overwritten
  float* mean2d_norm;          // [views,n], overwritten
};

// `background` as in the forward pass; `grad` points at the first view.
void RasterBackward(const Gaussians& gaussians, const Options& options, const std::vector<ViewState>& states,
                    const PictureGradient& grad, const BackwardOutputs& out, Timings* timings);

}  // namespace recon
