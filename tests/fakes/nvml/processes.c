/* Who runs on a GPU. */
#include <stdio.h>
#include <string.h>

#include "fake.h"

/* A GPU lists its own processes and those of its MIG devices; a MIG device lists its own. */
static bool runs_on(const struct process *p, unsigned unit) {
    return p->unit == unit || (!unit_is_mig(unit) && unit_gpu(p->unit) == unit);
}

static void instance_of(const struct scenario *s, const struct process *p, unsigned *gi, unsigned *ci) {
    *gi = *ci = NVML_NO_INSTANCE;
    if (!unit_is_mig(p->unit)) return;
    const struct mig_device *m = &s->gpu[unit_gpu(p->unit)].mig[(p->unit - MAX_GPUS) % MAX_MIG];
    *gi = m->gi;
    *ci = m->ci;
}

/* All three generations of the call differ only in the size of an entry: 16 bytes at first, 24 since. */
static nvmlReturn_t list(nvmlDevice_t device, enum field gate, enum process_kind kind, size_t entry, unsigned *count, void *out) {
    struct call c;
    unsigned found = 0;
    if (count == NULL || (*count > 0 && out == NULL)) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, gate);
    if (result != NVML_SUCCESS) return result;
    for (unsigned i = 0; i < c.scenario->process_count; i++) {
        const struct process *p = &c.scenario->process[i];
        nvmlProcessInfo_t info = {.pid = p->pid, .usedGpuMemory = p->bytes};
        if (p->kind != kind || !runs_on(p, c.unit)) continue;
        instance_of(c.scenario, p, &info.gpuInstanceId, &info.computeInstanceId);
        if (found < *count) memcpy((char *)out + entry * found, &info, entry);
        found++;
    }
    call_end();
    result = found > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = found;
    return result;
}

#define PROCESS_LISTS(function, gate, kind) \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos) { \
        return list(device, gate, kind, sizeof *infos, count, infos); \
    } \
    NVML_API nvmlReturn_t function##_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) { \
        return list(device, gate, kind, sizeof *infos, count, infos); \
    } \
    NVML_API nvmlReturn_t function##_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) { \
        return list(device, gate, kind, sizeof *infos, count, infos); \
    }
PROCESS_LISTS(nvmlDeviceGetComputeRunningProcesses, F_processes, COMPUTE_PROCESS)
PROCESS_LISTS(nvmlDeviceGetGraphicsRunningProcesses, F_graphics_processes, GRAPHICS_PROCESS)

/* A process that shares its context through MPS; real drivers list it among the compute processes too. */
PROCESS_LISTS(nvmlDeviceGetMPSComputeRunningProcesses, F_processes, MPS_PROCESS)

/* The name in the scenario, else that of the real process with this id. */
static bool real_name(unsigned pid, char *out, size_t size) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    bool good = fgets(out, (int)size, file) != NULL;
    fclose(file);
    if (good) out[strcspn(out, "\n")] = '\0';
    return good;
}

static bool scenario_name(const struct scenario *s, unsigned pid, char *out, size_t size) {
    for (unsigned i = 0; i < s->process_count; i++) {
        if (s->process[i].pid != pid || s->process[i].name[0] == '\0') continue;
        snprintf(out, size, "%s", s->process[i].name);
        return true;
    }
    return false;
}

NVML_API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    char full[64];
    if (name == NULL || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
    lock();
    refresh();
    bool ready = initialized(), found = ready && scenario_name(current(), pid, full, sizeof full);
    unlock();
    if (!ready) return NVML_ERROR_UNINITIALIZED;
    if (!found && !real_name(pid, full, sizeof full)) return NVML_ERROR_NOT_FOUND;
    snprintf(name, length, "%s", full);
    return NVML_SUCCESS;
}
