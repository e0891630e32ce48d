/* Hears of a rewritten scenario, so that a thread that waits for an event costs nothing meanwhile, as in a real driver. */
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

enum { SETTLE_NS = 6000000 };

static int notes = -1;
static char *folder, *name;

static bool is_ours(const char *buffer, ssize_t length) {
    for (const char *at = buffer; at < buffer + length;) {
        const struct inotify_event *e = (const struct inotify_event *)at;
        if ((e->mask & (IN_Q_OVERFLOW | IN_IGNORED)) || (e->len > 0 && strcmp(e->name, name) == 0)) return true;
        at += sizeof *e + e->len;
    }
    return false;
}

static void *listen_for_writes(void *unused) {
    char buffer[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)] __attribute__((aligned(8)));
    (void)unused;
    for (;;) {
        ssize_t length = read(notes, buffer, sizeof buffer);
        if (length <= 0) continue;
        lock();
        bool ours = is_ours(buffer, length);
        unlock();
        if (!ours) continue;
        nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL); /* the file is not looked at more often */
        lock();
        announce_change();
        unlock();
    }
    return NULL;
}

static bool start(void) {
    pthread_t thread;
    if (notes >= 0) return true;
    notes = inotify_init1(IN_CLOEXEC);
    if (notes < 0) return false;
    if (pthread_create(&thread, NULL, listen_for_writes, NULL) == 0) return pthread_detach(thread) == 0;
    close(notes);
    notes = -1;
    return false;
}

static bool follow(const char *path) {
    char *for_folder = strdup(path), *for_name = strdup(path);
    free(folder);
    free(name);
    folder = for_folder == NULL ? NULL : strdup(dirname(for_folder));
    name = for_name == NULL ? NULL : strdup(basename(for_name));
    free(for_folder);
    free(for_name);
    return folder != NULL && name != NULL && inotify_add_watch(notes, folder, IN_MOVED_TO | IN_CLOSE_WRITE) >= 0;
}

/* With the lock held: whether a rewrite of the scenario at `path` will be announced. */
bool watched(const char *path) {
    static char *current;
    static bool works;
    if (path == NULL) return false;
    if (current != NULL && strcmp(current, path) == 0) return works;
    free(current);
    current = strdup(path);
    works = current != NULL && start() && follow(path);
    return works;
}
