/* Counters integrate the scenario over time, so energy follows power and throttle time follows its reason bit.
 *
 * Values are constant between two scenarios; a counter is brought up to date when it is read and when the scenario changes. */
#include <string.h>
#include <time.h>

#include "fake.h"

enum { HW_SLOWDOWN = 0x8, SW_THERMAL = 0x20, HW_THERMAL = 0x40, POWER_BRAKE = 0x80, ANY_LIMIT = 0x7FE };

/* Either `scale` times the value of `rate` per second, or a second's nanoseconds while a bit of `reasons` is set.
 * A scenario line for `start` puts the counter at that number. */
static const struct {
    enum field start, rate;
    double scale;
    unsigned reasons;
} rules[C_COUNT] = {
    [C_energy] = {F_energy, F_power, 1e3, 0},
    [C_pcie_tx] = {F_pcie_tx_total, F_pcie_tx, 1048576, 0},
    [C_pcie_rx] = {F_pcie_rx_total, F_pcie_rx, 1048576, 0},
    [C_nvlink_tx] = {F_nvlink_tx_total, F_nvlink_tx, 1024, 0},
    [C_nvlink_rx] = {F_nvlink_rx_total, F_nvlink_rx, 1024, 0},
    [C_power] = {F_violation_power, F_all, 1e9, 0x4},
    [C_thermal] = {F_violation_thermal, F_all, 1e9, HW_SLOWDOWN | SW_THERMAL | HW_THERMAL},
    [C_sync_boost] = {F_violation_sync_boost, F_all, 1e9, 0x10},
    [C_board_limit] = {F_violation_board_limit, F_all, 1e9, 0x200},
    [C_low_utilization] = {F_violation_low_utilization, F_all, 1e9, 0x1},
    [C_reliability] = {F_violation_reliability, F_all, 1e9, 0x400},
    [C_app_clocks] = {F_violation_app_clocks, F_all, 1e9, ANY_LIMIT},
    [C_base_clocks] = {F_violation_base_clocks, F_all, 1e9, HW_SLOWDOWN | HW_THERMAL | POWER_BRAKE},
    [C_sw_thermal] = {F_event_sw_thermal, F_all, 1e9, SW_THERMAL},
    [C_hw_thermal] = {F_event_hw_thermal, F_all, 1e9, HW_THERMAL},
    [C_hw_power_brake] = {F_event_hw_power_brake, F_all, 1e9, POWER_BRAKE},
    [C_gpm_pcie_tx] = {F_all, F_pcie_tx, 1, 0},
    [C_gpm_pcie_rx] = {F_all, F_pcie_rx, 1, 0},
    [C_gpm_nvlink_tx] = {F_all, F_nvlink_tx, 1, 0},
    [C_gpm_nvlink_rx] = {F_all, F_nvlink_rx, 1, 0},
};

static double total[MAX_UNITS][C_COUNT];
static int64_t upto_ns[MAX_UNITS];

static enum field rate_field(enum counter c) {
    return c >= C_GPM && c <= C_GPM_LAST ? (enum field)(F_graphics_active + (c - C_GPM)) : rules[c].rate;
}

static double rate(const struct unit *u, const struct unit *parent, enum counter c) {
    if (rules[c].reasons != 0) {
        double mask = u->value[F_clock_event_reasons];
        return !isnan(mask) && ((unsigned long long)mask & rules[c].reasons) != 0 ? rules[c].scale : 0;
    }
    double value = u->value[rate_field(c)];
    if (isnan(value)) value = parent->value[rate_field(c)];
    return isnan(value) ? 0 : value * (rules[c].scale == 0 ? 1 : rules[c].scale);
}

/* Energy counts since the driver was loaded: since boot, so a second process never sees less than the first did. */
static void first_seen(const struct unit *u, unsigned unit) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    total[unit][C_energy] = rate(u, u, C_energy) * ((double)t.tv_sec + (double)t.tv_nsec / 1e9);
}

void counters_advance(const struct scenario *s, unsigned unit) {
    const struct unit *u = unit_of(s, unit), *parent = &s->gpu[unit_gpu(unit)].unit;
    int64_t now = monotonic_ns();
    if (upto_ns[unit] == 0) first_seen(u, unit);
    double seconds = upto_ns[unit] == 0 ? 0 : (double)(now - upto_ns[unit]) / 1e9;
    upto_ns[unit] = now;
    for (int c = 0; c < C_COUNT; c++) total[unit][c] += seconds * rate(u, parent, (enum counter)c);
}

static void set_starts(const struct unit *before, const struct unit *after, unsigned unit) {
    for (int c = 0; c < C_COUNT; c++) {
        if (rules[c].start == F_all) continue;
        double wanted = after->value[rules[c].start];
        bool same = before != NULL && before->value[rules[c].start] == wanted;
        if (!isnan(wanted) && !same) total[unit][c] = wanted;
    }
}

void counters_rebase(const struct scenario *before, const struct scenario *after) {
    for (unsigned unit = 0; unit < MAX_UNITS; unit++) {
        bool was = before != NULL && unit_exists(before, unit);
        if (was) counters_advance(before, unit);
        if (!unit_exists(after, unit)) continue;
        if (!was) upto_ns[unit] = 0, memset(total[unit], 0, sizeof total[unit]);
        counters_advance(after, unit);
        set_starts(was ? unit_of(before, unit) : NULL, unit_of(after, unit), unit);
    }
}

int64_t counters_upto(unsigned unit) { return upto_ns[unit]; }
double counter_value(unsigned unit, enum counter counter) { return total[unit][counter]; }

bool field_is_counter(enum field field, enum counter *counter) {
    for (int c = 0; c < C_COUNT; c++) {
        if (rules[c].start != field || field == F_all) continue;
        *counter = (enum counter)c;
        return true;
    }
    return false;
}
