/* SPDX-License-Identifier: Apache-2.0 */

/* See proctree.h. */

#include "bash/proctree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"

/* STEP_MS is the pause between two rounds; a process can fork between two looks, so one round
 * is not enough. */
enum {
    PROCESSES_MAX = 65536,
    STEP_MS = 5,
    ROUNDS_MAX = 100,
    KILL_ROUNDS = 3,
    REAP_MAX = 10000
};

/* Field numbers in /proc/PID/stat, counted from the state. */
enum {
    STAT_STATE = 0,
    STAT_PARENT = 1,
    STAT_GROUP = 2,
    STAT_SESSION = 3,
    STAT_START = 19,
    STAT_FIELDS = 20
};

static bool read_process(int proc_fd, const char *name, struct process *ret_process)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof(path), "%s/stat", name);
    cleanup_close int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    /* The command name may contain anything, also brackets: the fields begin after the last
     * one. */
    char *rest = strrchr(text, ')');
    char *fields[STAT_FIELDS] = {0};
    if (!rest || rest[1] == '\0')
        return false;
    rest += 2;
    for (size_t i = 0; i < STAT_FIELDS; i++)
        if (!(fields[i] = strsep(&rest, " ")))
            return false;
    *ret_process = (struct process){
        .pid = (pid_t)strtol(name, NULL, 10),
        .parent = (pid_t)strtol(fields[STAT_PARENT], NULL, 10),
        .group = (pid_t)strtol(fields[STAT_GROUP], NULL, 10),
        .session = (pid_t)strtol(fields[STAT_SESSION], NULL, 10),
        .state = fields[STAT_STATE][0],
        .start_ticks = strtoull(fields[STAT_START], NULL, 10),
    };
    return ret_process->state != 'Z' && ret_process->state != 'X';
}

static int compare_pids(const void *a, const void *b)
{
    pid_t first = ((const struct process *)a)->pid, second = ((const struct process *)b)->pid;
    return (first > second) - (first < second);
}

bool tree_is_below(const struct tree *t, pid_t pid, pid_t root)
{
    for (size_t depth = 0; depth <= t->count; depth++) {
        if (pid == root)
            return true;
        const struct process key = {.pid = pid};
        const struct process *found =
            t->count ? bsearch(&key, t->all, t->count, sizeof(key), compare_pids) : NULL;
        if (!found)
            return false;
        pid = found->parent;
    }
    return false;
}

int tree_read(struct tree *ret_tree)
{
    cleanup_closedir DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;
    struct tree all = {0};
    size_t space = 0;
    struct dirent *entry;
    while ((entry = readdir(proc)) && all.count < PROCESSES_MAX) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        if (all.count == space) {
            space = space ? space * 2 : 64;
            all.all = xreallocarray(all.all, space, sizeof(*all.all));
        }
        if (read_process(dirfd(proc), entry->d_name, &all.all[all.count]))
            all.count++;
    }
    if (all.count)
        qsort(all.all, all.count, sizeof(*all.all), compare_pids);
    /* Mark first, compact later: the search for an ancestor needs all processes. */
    cleanup_free bool *below = xcalloc(all.count + 1, sizeof(*below));
    for (size_t i = 0; i < all.count; i++)
        below[i] = all.all[i].pid != getpid() && tree_is_below(&all, all.all[i].pid, getpid());
    size_t kept = 0;
    for (size_t i = 0; i < all.count; i++)
        if (below[i])
            all.all[kept++] = all.all[i];
    all.count = kept;
    *ret_tree = all;
    return 0;
}

void tree_done(struct tree *t)
{
    free(t->all);
    *t = (struct tree){0};
}

uint64_t tree_now_ticks(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
    return (uint64_t)now.tv_sec * hz + (uint64_t)now.tv_nsec * hz / 1000000000u;
}

static void rest(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
}

/* Signals the tree as it is now. Returns its number of processes. */
static size_t signal_tree(pid_t root, const struct tree *known, int signal_number)
{
    cleanup_tree struct tree now = {0};
    if (tree_read(&now) < 0)
        return 0;
    size_t count = 0;
    for (size_t i = 0; i < now.count; i++) {
        pid_t pid = now.all[i].pid;
        bool ours = tree_is_below(&now, pid, root);
        /* A process whose parent has died has a new parent. It is recognized by the earlier
         * snapshot. */
        for (size_t k = 0; k < known->count && !ours; k++)
            ours = known->all[k].start_ticks == now.all[i].start_ticks &&
                   tree_is_below(&now, pid, known->all[k].pid) &&
                   tree_is_below(known, known->all[k].pid, root);
        if (!ours)
            continue;
        count++;
        if (signal_number)
            (void)kill(pid, signal_number);
        if (signal_number == SIGTERM)
            (void)kill(pid, SIGCONT);
    }
    return count;
}

void tree_end(pid_t root, unsigned grace_ms)
{
    cleanup_tree struct tree known = {0};
    if (tree_read(&known) < 0)
        return;
    (void)signal_tree(root, &known, SIGTERM);
    uint64_t deadline = clock_ms() + grace_ms;
    while (signal_tree(root, &known, 0) > 0 && clock_ms() < deadline)
        rest();
    for (int i = 0; i < ROUNDS_MAX && signal_tree(root, &known, SIGKILL) > 0; i++)
        rest();
}

void tree_kill_since(uint64_t since_ticks, pid_t spare)
{
    for (int i = 0; i < KILL_ROUNDS; i++) {
        cleanup_tree struct tree now = {0};
        if (tree_read(&now) < 0)
            return;
        bool any = false;
        for (size_t k = 0; k < now.count; k++) {
            if (now.all[k].pid == spare || now.all[k].start_ticks < since_ticks)
                continue;
            any = true;
            (void)kill(now.all[k].pid, SIGKILL);
        }
        if (!any)
            return;
        rest();
    }
}

/* The kernel signals all of a group at once, also processes that fork and exit faster than
 * /proc can be read. Our session may have groups of others, unless we lead it. */
static void kill_group(pid_t group, pid_t session)
{
    bool is_below = session > 1 && session != getsid(0);
    bool leads = session == getpid() && group != getpgrp();
    if (group > 1 && (is_below || leads))
        (void)kill(-group, SIGKILL);
}

/* Returns false when nothing of the tree can be killed, because it belongs to other users. */
static bool kill_once(void)
{
    cleanup_tree struct tree now = {0};
    if (tree_read(&now) < 0)
        return false;
    bool is_refused = now.count > 0;
    for (size_t i = 0; i < now.count; i++) {
        int r = kill(now.all[i].pid, SIGKILL);
        is_refused = is_refused && r < 0 && errno == EPERM;
        kill_group(now.all[i].group, now.all[i].session);
    }
    return !is_refused;
}

/* Until it is reaped, a process that has ended tells its group. Returns false when there is no
 * child. */
static bool reap_all(void)
{
    pid_t last = 0;
    for (int i = 0; i < REAP_MAX; i++) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
            return errno != ECHILD;
        if (info.si_pid == 0)
            return true;
        pid_t group = getpgid(info.si_pid);
        if (group != last) /* a signal to a group of many takes long */
            kill_group(group, getsid(info.si_pid));
        last = group;
        (void)waitpid(info.si_pid, NULL, WNOHANG);
    }
    return true;
}

void tree_kill_all(unsigned ms)
{
    uint64_t until_ms = clock_ms() + ms;
    while (kill_once() && reap_all() && clock_ms() < until_ms)
        rest();
    (void)reap_all();
}
