// One function a schedule: its row of the table in optim/schedule.cpp.
#pragma once

#include "optim/schedule.h"

namespace dltrain {

KindRow<Schedule> step_schedule_row();
KindRow<Schedule> exponential_schedule_row();
KindRow<Schedule> one_cycle_schedule_row();
KindRow<Schedule> wsd_schedule_row();

}  // namespace dltrain
