#pragma once
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>
