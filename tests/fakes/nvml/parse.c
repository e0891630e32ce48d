/* Reads a scenario: lines of words, `#` starts a comment. README.md describes the language. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { MAX_WORDS = 64 };

/* Models and seeds decide what a GPU is, MIG decides what it supports, and only then do values apply. */
enum pass { PASS_SYSTEM, PASS_MIG, PASS_VALUES, PASS_COUNT };

struct parser {
    struct scenario *s;
    enum pass pass;
    unsigned line;
    char *word[MAX_WORDS];
    char *rest; /* the line after its first word, as written */
    int words;
    char *problem;
    size_t size;
};

static bool fail(struct parser *p, const char *format, ...) {
    va_list args;
    int used = snprintf(p->problem, p->size, "line %u: ", p->line);
    va_start(args, format);
    vsnprintf(p->problem + used, p->size - (size_t)used, format, args);
    va_end(args);
    return false;
}

static bool number(struct parser *p, const char *text, double *out) {
    char *end;
    if (strcmp(text, "na") == 0) return *out = NAN, true;
    *out = strtod(text, &end);
    return *end == '\0' && end != text ? true : fail(p, "'%s' is no number", text);
}

static bool natural(struct parser *p, const char *text, unsigned long long *out) {
    char *end;
    *out = strtoull(text, &end, 0);
    return *end == '\0' && *text >= '0' && *text <= '9' ? true : fail(p, "'%s' is no whole number", text);
}

static bool small(struct parser *p, const char *text, unsigned limit, unsigned *out) {
    unsigned long long n;
    if (!natural(p, text, &n)) return false;
    *out = (unsigned)n;
    return n < limit ? true : fail(p, "%s is out of range, the limit is %u", text, limit);
}

static bool text(struct parser *p, const char *value, char *out, size_t size) {
    if (value == NULL || *value == '\0') return fail(p, "a value is missing");
    snprintf(out, size, "%s", value);
    return true;
}

static bool word_count(struct parser *p, int least, int most) {
    return p->words >= least && p->words <= most ? true : fail(p, "'%s' has a wrong number of words", p->word[0]);
}

/* ---- lines about the whole node ---- */

static bool set_order(struct parser *p) {
    bool seen[MAX_GPUS] = {false};
    for (int i = 1; i < p->words; i++) {
        unsigned gpu;
        if (!small(p, p->word[i], p->s->gpus, &gpu)) return false;
        if (seen[gpu]) return fail(p, "GPU %u occurs twice", gpu);
        seen[gpu] = true;
        p->s->order[i - 1] = gpu;
    }
    p->s->order_count = (unsigned)p->words - 1;
    return true;
}

static bool set_minor(struct parser *p) {
    unsigned gpu, minor;
    if (!word_count(p, 3, 3) || !small(p, p->word[1], MAX_GPUS, &gpu) || !small(p, p->word[2], 1u << 20, &minor)) return false;
    p->s->gpu[gpu].unit.value[F_minor] = minor;
    return true;
}

static bool add_event(struct parser *p, uint64_t id, unsigned gpu, char **word, int words) {
    struct scenario *s = p->s;
    struct event *e = &s->event[s->event_count];
    if (s->event_count == MAX_EVENTS) return fail(p, "more than %d events", MAX_EVENTS);
    if (words < 2) return fail(p, "an event needs a kind and a value");
    *e = (struct event){.id = id, .gpu = gpu, .gi = NVML_NO_INSTANCE, .ci = NVML_NO_INSTANCE};
    if (!event_type_named(word[0], &e->type) && !natural(p, word[0], &e->type)) return false;
    if (!natural(p, word[1], &e->data)) return false;
    if (words > 2 && !small(p, word[2], 1u << 10, &e->gi)) return false;
    if (words > 3 && !small(p, word[3], 1u << 10, &e->ci)) return false;
    s->event_count++;
    return true;
}

static bool set_event(struct parser *p) {
    unsigned gpu;
    if (!word_count(p, 5, 7) || !small(p, p->word[2], MAX_GPUS, &gpu)) return false;
    return add_event(p, hash_text(p->word[1], 4), gpu, p->word + 3, p->words - 3);
}

static bool set_small(struct parser *p, int *out) {
    unsigned n;
    if (!word_count(p, 2, 2) || !small(p, p->word[1], 1u << 20, &n)) return false;
    *out = (int)n;
    return true;
}

static bool set_gpus(struct parser *p) { return word_count(p, 2, 2) && small(p, p->word[1], MAX_GPUS + 1, &p->s->gpus); }
static bool set_driver(struct parser *p) { return text(p, p->rest, p->s->driver, sizeof p->s->driver); }
static bool set_nvml(struct parser *p) { return text(p, p->rest, p->s->nvml_version, sizeof p->s->nvml_version); }
static bool set_seed(struct parser *p) { return text(p, p->rest, p->s->seed, sizeof p->s->seed); }
static bool set_model(struct parser *p) { return text(p, p->rest, p->s->model, sizeof p->s->model); }
static bool set_cuda(struct parser *p) { return set_small(p, &p->s->cuda); }
static bool set_init_error(struct parser *p) { return set_small(p, &p->s->init_error); }
static bool set_wait_error(struct parser *p) { return set_small(p, &p->s->wait_error); }
static bool set_hangs(struct parser *p) {
    static const struct {
        const char *word;
        size_t at;
    } calls[] = {{"init", offsetof(struct scenario, hang_init)},
                 {"count", offsetof(struct scenario, hang_count)},
                 {"wait", offsetof(struct scenario, hang_wait)}};
    for (int i = 1; i < p->words; i++) {
        size_t c = 0;
        while (c < 3 && strcmp(p->word[i], calls[c].word) != 0) c++;
        if (c == 3) return fail(p, "'%s' is no call of the library", p->word[i]);
        *((bool *)((char *)p->s + calls[c].at)) = true;
    }
    return p->words > 1 ? true : fail(p, "'hang' needs the name of a call");
}
static bool set_noise(struct parser *p) { return word_count(p, 2, 2) && number(p, p->word[1], &p->s->noise); }
static bool set_mismatch(struct parser *p) {
    p->s->init_error = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    return word_count(p, 1, 1);
}

static const struct {
    const char *word;
    enum pass pass;
    bool (*apply)(struct parser *);
} system_lines[] = {
    {"driver", PASS_SYSTEM, set_driver}, {"nvml_version", PASS_SYSTEM, set_nvml}, {"cuda", PASS_SYSTEM, set_cuda},
    {"gpus", PASS_SYSTEM, set_gpus},     {"seed", PASS_SYSTEM, set_seed},         {"model", PASS_SYSTEM, set_model},
    {"noise", PASS_SYSTEM, set_noise},   {"lib_mismatch", PASS_SYSTEM, set_mismatch},
    {"init_error", PASS_SYSTEM, set_init_error}, {"wait_error", PASS_SYSTEM, set_wait_error},
    {"hang", PASS_SYSTEM, set_hangs},
    {"order", PASS_MIG, set_order},      {"minor", PASS_VALUES, set_minor},       {"event", PASS_VALUES, set_event},
};

/* ---- lines about one GPU or MIG device ---- */

static bool field_named(const char *name, enum field *field) {
    for (int f = 0; f < F_COUNT; f++) {
        size_t n = strlen(field_info[f].name);
        if (strncmp(name, field_info[f].name, n) != 0) continue;
        if (name[n] != '\0' && strcmp(name + n, field_info[f].unit) != 0) continue;
        *field = (enum field)f;
        return true;
    }
    return false;
}

static struct unit *unit_for(struct parser *p, unsigned unit) {
    struct gpu *g = &p->s->gpu[unit_gpu(unit)];
    return unit_is_mig(unit) ? &g->mig[(unit - MAX_GPUS) % MAX_MIG].unit : &g->unit;
}

static bool set_result(struct parser *p, unsigned unit, int code, int from, int to) {
    enum field field;
    if (from >= to) return fail(p, "'%s' needs the name of a field", p->word[1]);
    for (int i = from; i < to; i++) {
        if (!field_named(p->word[i], &field)) return fail(p, "unknown field '%s'", p->word[i]);
        unit_for(p, unit)->override[field] = (short)code;
    }
    return true;
}

static bool set_error(struct parser *p, unsigned unit) {
    unsigned code;
    return word_count(p, 4, 4) && small(p, p->word[3], 1000, &code) && set_result(p, unit, (int)code, 2, 3);
}
static bool set_unsupported(struct parser *p, unsigned unit) { return set_result(p, unit, NVML_ERROR_NOT_SUPPORTED, 2, p->words); }
static bool set_ok(struct parser *p, unsigned unit) { return set_result(p, unit, NVML_SUCCESS, 2, p->words); }
static bool set_lost(struct parser *p, unsigned unit) {
    unit_for(p, unit)->override[F_all] = NVML_ERROR_GPU_IS_LOST;
    return word_count(p, 2, 2);
}

static bool set_hang(struct parser *p, unsigned unit) {
    enum field field;
    for (int i = 2; i < p->words; i++) {
        if (!field_named(p->word[i], &field)) return fail(p, "unknown field '%s'", p->word[i]);
        unit_for(p, unit)->hang[field] = true;
    }
    return p->words > 2 ? true : fail(p, "'hang' needs the name of a field");
}

static bool add_process(struct parser *p, unsigned unit, enum process_kind kind) {
    struct scenario *s = p->s;
    struct process *proc = &s->process[s->process_count];
    if (!word_count(p, 4, 5)) return false;
    if (s->process_count == MAX_PROCESSES) return fail(p, "more than %d processes", MAX_PROCESSES);
    *proc = (struct process){.unit = unit, .kind = kind, .bytes = ~0ull};
    if (!small(p, p->word[2], ~0u, &proc->pid) && strcmp(p->word[2], "4294967295") != 0) return false;
    if (strcmp(p->word[3], "na") != 0 && !natural(p, p->word[3], &proc->bytes)) return false;
    if (p->words > 4) snprintf(proc->name, sizeof proc->name, "%s", p->word[4]);
    s->process_count++;
    return true;
}
static bool set_process(struct parser *p, unsigned unit) { return add_process(p, unit, COMPUTE_PROCESS); }
static bool set_mps(struct parser *p, unsigned unit) { return add_process(p, unit, MPS_PROCESS); }
static bool set_graphics(struct parser *p, unsigned unit) { return add_process(p, unit, GRAPHICS_PROCESS); }

/* Without an id of its own an event is known by its text and by how often that text stood before. */
static bool set_xid(struct parser *p, unsigned unit) {
    char key[96];
    uint64_t id;
    unsigned repeated = 0;
    if (!word_count(p, 3, 5)) return false;
    do {
        snprintf(key, sizeof key, "%u xid %s %u", unit, p->word[2], repeated++);
        id = hash_text(key, 5);
        for (unsigned i = 0; i < p->s->event_count; i++)
            if (p->s->event[i].id == id) id = 0;
    } while (id == 0);
    return add_event(p, id, unit_gpu(unit), p->word + 1, p->words - 1);
}

static bool set_mig(struct parser *p, unsigned unit) {
    unsigned gi, ci;
    struct gpu *g = &p->s->gpu[unit_gpu(unit)];
    if (!word_count(p, 5, 5) || !small(p, p->word[3], 64, &gi) || !small(p, p->word[4], 64, &ci)) return false;
    if (unit_is_mig(unit) || !mig_defaults(p->s, unit, p->word[2], gi, ci)) return fail(p, "no MIG device '%s' fits", p->word[2]);
    g->unit.value[F_mig_mode] = 1;
    g->unit.value[F_util] = g->unit.value[F_mem_util] = NAN;
    return true;
}

static bool link_set(struct parser *p, double *link) {
    double value = 1;
    const char *name = p->word[3];
    if (strcmp(name, "down") == 0) return link[L_up] = 0, true;
    if (p->words > 4 && !number(p, p->word[4], &value)) return false;
    for (int l = 0; l < L_COUNT; l++)
        if (strcmp(name, link_field_name[l]) == 0) return link[l] = value, true;
    return fail(p, "unknown NVLink field '%s'", name);
}

static bool set_nvlink(struct parser *p, unsigned unit) {
    struct gpu *g = &p->s->gpu[unit_gpu(unit)];
    unsigned first = 0, last = g->model->nvlinks;
    if (!word_count(p, 4, 5)) return false;
    if (strcmp(p->word[2], "all") != 0) {
        if (!small(p, p->word[2], last, &first)) return false;
        last = first + 1;
    }
    for (unsigned link = first; link < last; link++)
        if (!link_set(p, g->link[link])) return false;
    return true;
}

static bool set_busy(struct parser *p, unsigned unit) {
    gpu_busy(&p->s->gpu[unit_gpu(unit)]);
    return word_count(p, 2, 2);
}

static bool set_gpu_model(struct parser *p, unsigned unit) {
    char *name = p->rest == NULL ? NULL : strchr(p->rest, ' ');
    return text(p, name == NULL ? NULL : name + 1, p->s->gpu[unit_gpu(unit)].name, sizeof p->s->gpu->name);
}
static bool set_uuid(struct parser *p, unsigned unit) {
    struct gpu *g = &p->s->gpu[unit_gpu(unit)];
    if (!unit_is_mig(unit)) return text(p, p->word[2], g->uuid, sizeof g->uuid);
    struct mig_device *m = &g->mig[(unit - MAX_GPUS) % MAX_MIG];
    return text(p, p->word[2], m->uuid, sizeof m->uuid);
}
static bool set_serial(struct parser *p, unsigned unit) {
    return text(p, p->word[2], p->s->gpu[unit_gpu(unit)].serial, sizeof p->s->gpu->serial);
}
static bool set_vbios(struct parser *p, unsigned unit) {
    return text(p, p->word[2], p->s->gpu[unit_gpu(unit)].vbios, sizeof p->s->gpu->vbios);
}
static bool set_part(struct parser *p, unsigned unit) {
    return text(p, p->word[2], p->s->gpu[unit_gpu(unit)].part_number, sizeof p->s->gpu->part_number);
}
static bool set_pci(struct parser *p, unsigned unit) {
    struct gpu *g = &p->s->gpu[unit_gpu(unit)];
    if (!word_count(p, 3, 3)) return false;
    if (sscanf(p->word[2], "%x:%x:%x", &g->domain, &g->bus, &g->device) == 3) return true;
    return fail(p, "'%s' is no PCI address like 0000:1b:00.0", p->word[2]);
}

static const struct {
    const char *word;
    enum pass pass;
    bool (*apply)(struct parser *, unsigned unit);
} unit_lines[] = {
    {"model", PASS_SYSTEM, set_gpu_model}, {"mig", PASS_MIG, set_mig},         {"lost", PASS_VALUES, set_lost},
    {"hang", PASS_VALUES, set_hang},       {"error", PASS_VALUES, set_error},  {"unsupported", PASS_VALUES, set_unsupported},
    {"ok", PASS_VALUES, set_ok},           {"xid", PASS_VALUES, set_xid},      {"process", PASS_VALUES, set_process},
    {"graphics_process", PASS_VALUES, set_graphics}, {"mps_process", PASS_VALUES, set_mps}, {"nvlink", PASS_VALUES, set_nvlink},
    {"busy", PASS_VALUES, set_busy},       {"uuid", PASS_VALUES, set_uuid},    {"serial", PASS_VALUES, set_serial},
    {"vbios", PASS_VALUES, set_vbios},     {"part_number", PASS_VALUES, set_part}, {"pci", PASS_VALUES, set_pci},
};

static bool set_value(struct parser *p, unsigned unit) {
    enum field field;
    double value;
    if (!field_named(p->word[1], &field)) return fail(p, "unknown field '%s'", p->word[1]);
    if (field_info[field].flags & CALL) return fail(p, "'%s' is a call and has no value", p->word[1]);
    if (!word_count(p, 3, 3) || !number(p, p->word[2], &value)) return false;
    unit_for(p, unit)->value[field] = value;
    return true;
}

static bool apply_to(struct parser *p, unsigned unit) {
    for (size_t i = 0; i < sizeof unit_lines / sizeof *unit_lines; i++) {
        if (strcmp(p->word[1], unit_lines[i].word) != 0) continue;
        return unit_lines[i].pass != p->pass || unit_lines[i].apply(p, unit);
    }
    return p->pass != PASS_VALUES || set_value(p, unit);
}

/* `all`, `3`, `0-3`, or `2/0` for the first MIG device of GPU 2. */
static bool unit_line(struct parser *p) {
    unsigned first, last, mig;
    char end;
    if (!word_count(p, 2, MAX_WORDS)) return false;
    if (strcmp(p->word[0], "all") == 0) {
        first = 0;
        last = MAX_GPUS - 1;
    } else if (sscanf(p->word[0], "%u/%u%c", &first, &mig, &end) == 2) {
        if (first >= MAX_GPUS || mig >= MAX_MIG) return fail(p, "no device '%s'", p->word[0]);
        if (p->pass == PASS_VALUES && mig >= p->s->gpu[first].mig_count) return fail(p, "no device '%s'", p->word[0]);
        return apply_to(p, mig_unit(first, mig));
    } else if (sscanf(p->word[0], "%u-%u%c", &first, &last, &end) != 2) {
        if (sscanf(p->word[0], "%u%c", &first, &end) != 1) return fail(p, "unknown line '%s'", p->word[0]);
        last = first;
    }
    if (last >= MAX_GPUS || first > last) return fail(p, "no GPU '%s', the last one is %d", p->word[0], MAX_GPUS - 1);
    for (unsigned gpu = first; gpu <= last; gpu++)
        if (!apply_to(p, gpu_unit(gpu))) return false;
    return true;
}

static bool apply_line(struct parser *p) {
    for (size_t i = 0; i < sizeof system_lines / sizeof *system_lines; i++) {
        if (strcmp(p->word[0], system_lines[i].word) != 0) continue;
        return system_lines[i].pass != p->pass || system_lines[i].apply(p);
    }
    return unit_line(p);
}

/* ---- text to words ---- */

static bool split(struct parser *p, char *line, char *rest, size_t size) {
    char *save = NULL, *comment = strchr(line, '#');
    if (comment != NULL) *comment = '\0';
    size_t end = strlen(line);
    while (end > 0 && strchr(" \t\r", line[end - 1]) != NULL) line[--end] = '\0';
    line += strspn(line, " \t");
    snprintf(rest, size, "%s", line + strcspn(line, " \t"));
    p->rest = rest + strspn(rest, " \t");
    for (p->words = 0; p->words < MAX_WORDS; p->words++)
        if ((p->word[p->words] = strtok_r(p->words == 0 ? line : NULL, " \t", &save)) == NULL) return true;
    return fail(p, "more than %d words", MAX_WORDS);
}

static bool run_pass(struct parser *p, const char *text, char *copy) {
    char rest[256], *next = strcpy(copy, text);
    for (p->line = 1; next != NULL; p->line++) {
        char *line = next;
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        if (!split(p, line, rest, sizeof rest)) return false;
        if (p->words > 0 && !apply_line(p)) return false;
    }
    return true;
}

static void system_defaults(struct scenario *s) {
    snprintf(s->driver, sizeof s->driver, "580.95.05");
    snprintf(s->seed, sizeof s->seed, "heeler");
    snprintf(s->model, sizeof s->model, "NVIDIA H100 80GB HBM3");
    s->gpus = 8;
    s->cuda = 13000;
}

static bool run_passes(struct parser *p, const char *text, char *copy) {
    struct scenario *s = p->s;
    system_defaults(s);
    if (!run_pass(p, text, copy)) return false;
    for (unsigned gpu = 0; gpu < MAX_GPUS; gpu++) gpu_defaults(s, gpu);
    for (unsigned gpu = 0; gpu < s->gpus; gpu++) s->order[gpu] = gpu;
    s->order_count = s->gpus;
    if (s->nvml_version[0] == '\0') snprintf(s->nvml_version, sizeof s->nvml_version, "%d.%.60s", s->cuda / 1000, s->driver);
    p->pass = PASS_MIG;
    if (!run_pass(p, text, copy)) return false;
    p->pass = PASS_VALUES;
    return run_pass(p, text, copy);
}

struct scenario *scenario_parse(char *text, char *problem, size_t size) {
    struct parser p = {.pass = PASS_SYSTEM, .problem = problem, .size = size};
    char *copy = malloc(strlen(text) + 1);
    p.s = calloc(1, sizeof *p.s);
    bool good = copy != NULL && p.s != NULL && run_passes(&p, text, copy);
    free(copy);
    if (good) return p.s;
    free(p.s);
    return NULL;
}
