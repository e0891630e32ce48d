/* Event sets: each line `event` of a scenario reaches every set that asked for its kind, once. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { MAX_SETS = 32, QUEUE = 256 };

struct nvmlEventSet_st {
    bool used;
    unsigned head, length;
    unsigned long long wanted[MAX_GPUS];
    struct event queue[QUEUE];
};
static struct nvmlEventSet_st sets[MAX_SETS];

/* Ids handed out in this process; they stay known through shutdown and init. */
static uint64_t *delivered;
static size_t delivered_count, delivered_room;

static const struct {
    const char *name;
    unsigned long long type;
} kinds[] = {
    {"sbe", 0x1},           {"dbe", 0x2},           {"pstate", 0x4},         {"xid", 0x8},
    {"clock", 0x10},        {"power_source", 0x80}, {"mig", 0x100},          {"sbe_storm", 0x200},
    {"dram_retirement", 0x400}, {"dram_retirement_failed", 0x800}, {"poison", 0x1000}, {"fatal_poison", 0x2000},
    {"unavailable", 0x4000}, {"recovery_action", 0x8000},
};

int event_type_named(const char *name, unsigned long long *type) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        *type = kinds[i].type;
        return 1;
    }
    return 0;
}

static unsigned long long all_types(void) {
    unsigned long long all = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) all |= kinds[i].type;
    return all;
}

/* ---- delivery, with the lock held ---- */

static bool was_delivered(uint64_t id) {
    for (size_t i = 0; i < delivered_count; i++)
        if (delivered[i] == id) return true;
    return false;
}

static void remember(uint64_t id) {
    if (delivered_count == delivered_room) {
        size_t room = delivered_room == 0 ? 64 : delivered_room * 2;
        uint64_t *more = realloc(delivered, room * sizeof *more);
        if (more == NULL) return;
        delivered = more;
        delivered_room = room;
    }
    delivered[delivered_count++] = id;
}

/* A full queue loses its oldest event, as a driver's does when nobody waits. */
static void push(struct nvmlEventSet_st *set, const struct event *e) {
    if (set->length == QUEUE) {
        set->head = (set->head + 1) % QUEUE;
        set->length--;
    }
    set->queue[(set->head + set->length++) % QUEUE] = *e;
}

static bool deliver(const struct event *e) {
    bool taken = false;
    for (int i = 0; i < MAX_SETS; i++) {
        if (!sets[i].used || (sets[i].wanted[e->gpu] & e->type) == 0) continue;
        push(&sets[i], e);
        taken = true;
    }
    return taken;
}

/* An event nobody asked for yet keeps waiting as long as its line stands. */
void events_dispatch(const struct scenario *s) {
    for (unsigned i = 0; i < s->event_count; i++)
        if (!was_delivered(s->event[i].id) && deliver(&s->event[i])) remember(s->event[i].id);
}

/* ---- calls ---- */

static bool is_set(nvmlEventSet_t set) { return set.handle >= sets && set.handle < sets + MAX_SETS && set.handle->used; }

NVML_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    if (set == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_RESOURCES;
    lock();
    if (!initialized()) result = NVML_ERROR_UNINITIALIZED;
    for (int i = 0; i < MAX_SETS && result == NVML_ERROR_INSUFFICIENT_RESOURCES; i++) {
        if (sets[i].used) continue;
        memset(&sets[i], 0, sizeof sets[i]);
        sets[i].used = true;
        set->handle = &sets[i];
        result = NVML_SUCCESS;
    }
    unlock();
    return result;
}

NVML_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    lock();
    nvmlReturn_t result = is_set(set) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) set.handle->used = false;
    announce_change();
    unlock();
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    struct call c;
    if (types == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin_gpu(&c, device, F_events);
    if (result != NVML_SUCCESS) return result;
    call_end();
    *types = all_types();
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    struct call c;
    nvmlReturn_t result = call_begin_gpu(&c, device, F_events);
    if (result != NVML_SUCCESS) return result;
    if (!is_set(set)) result = NVML_ERROR_INVALID_ARGUMENT;
    else if ((types & ~all_types()) != 0) result = NVML_ERROR_NOT_SUPPORTED;
    else set.handle->wanted[c.unit] |= types;
    if (result == NVML_SUCCESS) events_dispatch(c.scenario);
    announce_change();
    call_end();
    return result;
}

static void pop(struct nvmlEventSet_st *set, nvmlEventData_t *data) {
    const struct event *e = &set->queue[set->head];
    *data = (nvmlEventData_t){.device = handle_of(gpu_unit(e->gpu)), .eventType = e->type, .eventData = e->data,
                              .gpuInstanceId = e->gi, .computeInstanceId = e->ci};
    set->head = (set->head + 1) % QUEUE;
    set->length--;
}

/* With the lock held; SUCCESS only with an event in hand. */
static nvmlReturn_t wait_for_event(nvmlEventSet_t set, nvmlEventData_t *data, int64_t until_ns) {
    for (;;) {
        refresh();
        if (!initialized()) return NVML_ERROR_UNINITIALIZED;
        if (current()->hang_wait) {
            wait_for_change(monotonic_ns() + 20000000);
            continue;
        }
        if (!is_set(set)) return NVML_ERROR_INVALID_ARGUMENT;
        if (set.handle->length > 0) return pop(set.handle, data), NVML_SUCCESS;
        if (current()->wait_error != 0) return (nvmlReturn_t)current()->wait_error;
        if (monotonic_ns() >= until_ns) return NVML_ERROR_TIMEOUT;
        wait_for_change(until_ns);
    }
}

static nvmlReturn_t wait_event(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    if (data == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    lock();
    nvmlReturn_t result = wait_for_event(set, data, monotonic_ns() + (int64_t)timeout_ms * 1000000);
    unlock();
    return result;
}

NVML_API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    return wait_event(set, data, timeout_ms);
}

/* The first version knew no MIG instances. */
NVML_API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    nvmlEventData_t full;
    nvmlReturn_t result = data == NULL ? NVML_ERROR_INVALID_ARGUMENT : wait_event(set, &full, timeout_ms);
    if (result == NVML_SUCCESS) memcpy(data, &full, offsetof(nvmlEventData_t, gpuInstanceId));
    return result;
}
