/* SPDX-License-Identifier: Apache-2.0 */

/* The process that becomes the program. It takes the payload's id, drops every capability,
 * restricts itself with Landlock (the filter is loaded already), and only then reads the
 * package. It writes the files of the run with no more rights than the program will have, and
 * executes the program. */

#include "box/inside.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/os/sys.h"
#include "box/landlock.h"
#include "box/package_read.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int payload_fence(const struct inside *in)
{
    const char *writable[SPAWN_MAX_BOX_MOUNTS + 1];
    size_t count = 0;
    if (in->box->remove & (BARRIER_LANDLOCK | BARRIER_NNP))
        return 0;
    /* A copy of the session inherits these rules, but its own file systems do not exist yet:
     * rules for /box, /tmp and /dev/shm would leave it no place to write to. Everything else in
     * a box is mounted read-only. With BOX_ROOT all of the root is the payload's. */
    if (in->box->flags & (BOX_FORKS | BOX_ROOT))
        writable[count++] = "/";
    for (uint32_t i = 0; i < in->box->mount_count; i++) {
        if (in->box->mounts[i].writable)
            writable[count++] = in->box->mounts[i].path;
    }
    return landlock_restrict(in->landlock_abi, writable, count);
}

/* Makes the directories above a relative path, below the working directory. */
static int make_parents(const char *name)
{
    char path[4097];
    size_t len = strlen(name);
    if (len >= sizeof(path))
        return -ENAMETOOLONG;
    memcpy(path, name, len + 1);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return -errno;
        *slash = '/';
    }
    return 0;
}

static int write_file(const char *name, const struct package_file *file, const void *content)
{
    int r = strchr(name, '/') ? make_parents(name) : 0;
    if (r < 0)
        return r;
    cleanup_close int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
        file->executable ? 0755 : 0644);
    return fd < 0 ? -errno : fs_write_all(fd, content, file->size);
}

static int write_files(const struct package *package)
{
    size_t at = package->files_at;
    for (uint32_t i = 0; i < package->head.filec; i++) {
        struct package_file file;
        const char *name;
        const void *content;
        int r = package_next_file(package, &at, &file, &name, &content);
        if (r <= 0)
            return r < 0 ? r : -EBADMSG;
        if ((r = write_file(name, &file, content)) < 0)
            return r;
    }
    return 0;
}

int payload_limit_files(const struct inside *in)
{
    rlim_t bytes = in->box->limits.file_bytes;
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    if (in->box->remove & BARRIER_RLIMITS)
        return 0;
    return setrlimit(RLIMIT_FSIZE, &limit) < 0 ? -errno : 0;
}

/* Also makes a new process session: a signal to the program's group reaches no other
 * process. A copy of a template box leads one already (EPERM). */
static int connect_stdio(const struct inside *in)
{
    if (setsid() < 0 && errno != EPERM)
        return -errno;
    cleanup_close int null = in->stdin_fd < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    if (dup2(in->stdin_fd < 0 ? null : in->stdin_fd, 0) < 0 || dup2(in->stdout_fd, 1) < 0 ||
        dup2(in->stderr_fd, 2) < 0)
        return -errno;
    close_fd(&null); /* its number may be the number of the channel */
    unsigned from = 3;
    if (in->channel_fd >= 0) {
        /* Descriptor 3 was taken in the spawner and in the zygote, so the link never has this
         * number. */
        if (in->link_fd == CHANNEL_FD)
            return -EBADF;
        if (dup2(in->channel_fd, CHANNEL_FD) < 0 || fcntl(CHANNEL_FD, F_SETFD, 0) < 0)
            return -errno;
        from = CHANNEL_FD + 1;
    }
    /* Everything else closes at exec; until then the link can still report a failure. */
    if (in->box->remove & BARRIER_FDS)
        return fcntl(in->link_fd, F_SETFD, 0) < 0 ? -errno : 0;
    return sys_close_range(from, ~0u, CLOSE_AT_EXEC);
}

static void split_strings(const struct package *package, struct payload_words *ret)
{
    static char *argv[PACKAGE_MAX_ARGS + 1];
    static char *env[PACKAGE_MAX_ENV + 1];
    size_t at = 0;
    for (uint32_t i = 0; i < package->head.argc; i++)
        argv[i] = (char *)package_string(package, &at);
    for (uint32_t i = 0; i < package->head.envc; i++)
        env[i] = (char *)package_string(package, &at);
    *ret = (struct payload_words){argv, env};
}

int payload_read_words(int package_fd, struct payload_words *ret)
{
    struct package package;
    int r = package_open(package_fd, &package);
    if (r == 0)
        split_strings(&package, ret);
    return r;
}

void payload_enter(const struct inside *in)
{
    int r;
    if ((r = drop_to_payload(in)) < 0)
        inside_fail(in, STEP_DROP, r);
    if ((r = payload_fence(in)) < 0)
        inside_fail(in, STEP_LANDLOCK, r);
    /* As exec would do: the program may look at itself in /proc. */
    if (in->is_warm && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        inside_fail(in, STEP_DROP, -errno);
}

void payload_begin(const struct inside *in, struct payload_words *ret)
{
    struct package package;
    int r;
    if ((r = package_open(in->package_fd, &package)) < 0 || (r = write_files(&package)) < 0)
        inside_fail(in, STEP_FILES, r);
    if ((r = payload_limit_files(in)) < 0)
        inside_fail(in, STEP_RLIMITS, r);
    if ((r = connect_stdio(in)) < 0)
        inside_fail(in, STEP_STDIO, r);
    split_strings(&package, ret);
    struct link_record start = {
        .kind = LINK_START, .ns = clock_ns(), .cpu_ns = in->init_cpu_ns + inside_cpu_ns()};
    /* A start that is not reported would have no time limits. */
    if ((r = inside_send(in, &start)) < 0)
        inside_fail(in, STEP_RELEASE, r);
}

/* Puts package socket and init link at their fixed numbers. Descriptors 0, 1 and 2 are the
 * spawner's /dev/null. */
static int arrange_parked(const struct inside *in)
{
    int hand = fcntl(in->hand_fd, F_DUPFD_CLOEXEC, PARK_LINK_FD + 1);
    int link = fcntl(in->link_fd, F_DUPFD_CLOEXEC, PARK_LINK_FD + 1);
    if (hand < 0 || link < 0 || sys_close_range(3, ~0u, CLOSE_AT_EXEC) < 0 ||
        dup2(hand, PARK_HAND_FD) < 0 || dup2(link, PARK_LINK_FD) < 0)
        return -errno;
    return 0;
}

void payload_park(const struct inside *in, struct payload_words *ret)
{
    struct link_record parking = {.kind = LINK_PARKING};
    int r;
    if ((r = payload_read_words(in->package_fd, ret)) < 0)
        inside_fail(in, STEP_FILES, r);
    if ((r = inside_send(in, &parking)) < 0)
        inside_fail(in, STEP_RELEASE, r);
    if ((r = arrange_parked(in)) < 0)
        inside_fail(in, STEP_STDIO, r);
}

void payload_exec(const struct inside *in, const struct payload_words *words)
{
    (void)execve(in->exec_path, words->argv, words->env);
    inside_fail(in, STEP_EXEC, -errno);
}
