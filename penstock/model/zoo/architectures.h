// The zoo's networks, one function each. `spec` has every field filled in and checked. Layers of
// alexnet, vgg16, inception_v3 and the resnets are named as torchvision names its modules, so that
// state dicts of the two can be exchanged.
#pragma once

#include "penstock/model/model.h"
#include "penstock/model/zoo/model_spec.h"

namespace penstock::model::detail {

Model make_mlp(const ModelSpec& spec);
Model make_tied_mlp(const ModelSpec& spec);
Model make_lenet5(const ModelSpec& spec);
Model make_partime(const ModelSpec& spec);
Model make_vgg_small(const ModelSpec& spec);
Model make_alexnet(const ModelSpec& spec);
Model make_vgg16(const ModelSpec& spec);
Model make_resnet18(const ModelSpec& spec);
Model make_resnet50(const ModelSpec& spec);
Model make_s2vt(const ModelSpec& spec);
Model make_gnmt(const ModelSpec& spec);
Model make_inception_v3(const ModelSpec& spec);
Model make_gpt(const ModelSpec& spec);
Model make_awd_lm(const ModelSpec& spec);

}  // namespace penstock::model::detail
