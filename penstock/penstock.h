// Everything of the torch-free core: planning, schedules, verification, simulation, texts. Needs no
// libtorch; torch.h adds models and training. What these two include, and nothing else, is
// installed.
//
//   const Profile profile = penstock::profile::load_profile("vgg16.profile.json");
//   const auto result = penstock::planner::make_plan(profile,
//       penstock::cluster::load_cluster("cluster.toml"), {});
#pragma once

#include "penstock/cluster/cluster.h"
#include "penstock/frames/frame_queue.h"
#include "penstock/frames/open_source.h"
#include "penstock/graph/model_graph.h"
#include "penstock/launch/job_environment.h"
#include "penstock/plan/plan.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/what_if.h"
#include "penstock/probe/probe.h"
#include "penstock/profile/device_spec.h"
#include "penstock/profile/profile.h"
#include "penstock/report/page/html_report.h"
#include "penstock/report/report.h"
#include "penstock/schedule/formats/chrome_trace.h"
#include "penstock/schedule/formats/pytorch_csv.h"
#include "penstock/schedule/formats/read_trace.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"
#include "penstock/schedule/timeline_difference.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/simulate/simulator.h"
#include "penstock/text/metrics/bleu.h"
#include "penstock/text/metrics/perplexity.h"
#include "penstock/text/prepare.h"
#include "penstock/util/error.h"
#include "penstock/util/text/units.h"
#include "penstock/verify/verify.h"
