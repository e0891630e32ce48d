/* The current scenario: loaded at nvmlInit, looked at again when its file changed. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

enum { STAT_EVERY_NS = 5000000, POLL_NS = 20000000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct scenario *scenario;
static char *path;
static struct stat seen;
static int64_t looked_ns;
static unsigned users;

int64_t monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t epoch_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void prepare(void) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attr);
    pthread_condattr_destroy(&attr);
}

void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }
const struct scenario *current(void) { return scenario; }
bool initialized(void) { return users > 0; }
void announce_change(void) { pthread_cond_broadcast(&changed); }

/* Sleeps without the lock until something was announced (where the file isn't watched, until the next look at it is due)
 * or until `until_ns`. */
void wait_for_change(int64_t until_ns) {
    int64_t poll = monotonic_ns() + POLL_NS;
    int64_t due = watched(path) || until_ns < poll ? until_ns : poll;
    struct timespec t = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
    pthread_cond_timedwait(&changed, &mutex, &t);
}

static void complain(const char *problem) {
    fprintf(stderr, "fake NVML: %s: %s; the scenario before stays\n", path, problem);
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static char *read_text(void) {
    FILE *file = fopen(path, "re");
    if (file == NULL) return NULL;
    size_t size = 0, used = 0;
    char *text = NULL;
    do {
        char *more = realloc(text, (size += 65536) + 1);
        if (more == NULL) break;
        text = more;
        used += fread(text + used, 1, size - used, file);
    } while (used == size);
    fclose(file);
    if (text != NULL) text[used] = '\0';
    return text;
}

static void adopt(struct scenario *next) {
    counters_rebase(scenario, next);
    free(scenario);
    scenario = next;
    events_dispatch(scenario);
    announce_change();
}

static void load(void) {
    char problem[256], *text = read_text();
    struct scenario *next = text == NULL ? NULL : scenario_parse(text, problem, sizeof problem);
    if (next != NULL) adopt(next);
    else complain(text == NULL ? strerror(errno) : problem);
    free(text);
}

static void load_default(void) {
    char nothing[] = "", problem[256];
    struct scenario *next = scenario_parse(nothing, problem, sizeof problem);
    if (next != NULL) adopt(next);
}

/* A file that is absent at first means the default node; one that goes away later changes nothing. */
void refresh(void) {
    struct stat now;
    int64_t t = monotonic_ns();
    if (path == NULL || (looked_ns != 0 && t - looked_ns < STAT_EVERY_NS)) return;
    looked_ns = t;
    if (stat(path, &now) != 0 || same_file(&now, &seen)) return;
    seen = now;
    load();
}

/* As a driver's device file is: open as long as anyone uses the library. */
static int device_file = -1;

static void hold_device_file(void) {
    const char *wanted = getenv("HEELER_FAKE_NVML_HOLDS");
    if (wanted != NULL && device_file < 0) device_file = open(wanted, O_RDONLY | O_CLOEXEC);
}

static void let_go_of_device_file(void) {
    if (device_file >= 0) close(device_file);
    device_file = -1;
}

static nvmlReturn_t init(void) {
    const char *wanted = getenv("HEELER_FAKE_NVML");
    pthread_once(&once, prepare);
    lock();
    if (wanted != NULL && (path == NULL || strcmp(wanted, path) != 0)) {
        free(path);
        path = strdup(wanted);
        memset(&seen, 0, sizeof seen);
    }
    looked_ns = 0;
    refresh();
    if (scenario == NULL) load_default();
    while (scenario != NULL && scenario->hang_init) {
        unlock();
        sleep_ms(20);
        lock();
        refresh();
    }
    nvmlReturn_t result = scenario == NULL ? NVML_ERROR_MEMORY : (nvmlReturn_t)scenario->init_error;
    if (result == NVML_SUCCESS && users++ == 0) hold_device_file();
    unlock();
    return result;
}

NVML_API nvmlReturn_t nvmlInit(void) { return init(); }
NVML_API nvmlReturn_t nvmlInit_v2(void) { return init(); }
NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return init();
}

NVML_API nvmlReturn_t nvmlShutdown(void) {
    lock();
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (users > 0 && --users == 0) {
        announce_change();
        let_go_of_device_file();
    }
    unlock();
    return result;
}
