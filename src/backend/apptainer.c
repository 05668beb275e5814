/* SPDX-License-Identifier: Apache-2.0 */

/* A container of Apptainer, or of Singularity: an instance that is started for the session, and
 * the far shell in it. The program has no other interface than its command line. `--containall`
 * keeps files, processes and variables of the machine out. A place that is kept has its files
 * in a directory of the user's; between sessions nothing of it runs. */

#include "backend/backend.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAID_MAX = 4096, STOP_MS = 30000 };
enum { LIMITED = 1u << PLACE_CPUS | 1u << PLACE_MEMORY | 1u << PLACE_PROCESSES };

struct instance {
    char name[PLACE_TEXT];
    char program[PLACE_TEXT];
    int lock_fd;
    bool is_there;
    char said[SAID_MAX + 1]; /* the end of the last command's stderr */
};

/* `command` of the row, or apptainer, or singularity. */
static void find_program(const struct place_row *row, char program[PLACE_TEXT])
{
    static const char *const dirs[] = {"/usr/local/bin", "/usr/bin", "/bin"};
    static const char *const names[] = {"apptainer", "singularity"};
    (void)snprintf(program, PLACE_TEXT, "%.255s", row->command[0] ? row->command : names[0]);
    for (size_t n = 0; !row->command[0] && n < 2; n++)
        for (size_t d = 0; d < sizeof(dirs) / sizeof(dirs[0]); d++) {
            char path[64];
            (void)snprintf(path, sizeof(path), "%s/%s", dirs[d], names[n]);
            if (access(path, X_OK) == 0) {
                (void)snprintf(program, PLACE_TEXT, "%s", path);
                return;
            }
        }
}

/* Runs a command of the program to its end. Returns its exit status, or negative errno. */
static int run(struct backend *b, struct instance *it, char *const argv[], uint64_t ms)
{
    struct backend_stream s;
    uint64_t until_ms = clock_ms() + ms;
    size_t len = 0;
    int status = -1;
    int r = backend_spawn(argv, NULL, &s);
    if (r < 0)
        return r;
    close_fd(&s.out_fd);
    it->said[0] = '\0';
    for (;;) {
        uint64_t now = clock_ms();
        char bytes[SAID_MAX / 2];
        struct pollfd fds[] = {
            {s.in_fd, POLLIN, 0}, {s.err_fd, POLLIN, 0}, {b->watch_fd, 0, 0}};
        if ((s.in_fd < 0 && s.err_fd < 0) || now >= until_ms)
            break;
        if (poll(fds, 3, (int)(until_ms - now)) < 0)
            continue;
        for (int i = 0; i < 2; i++) {
            int *fd = i ? &s.err_fd : &s.in_fd;
            ssize_t n = fds[i].revents ? read(*fd, bytes, sizeof(bytes)) : -1;
            if (n == 0)
                close_fd(fd);
            for (ssize_t at = 0; i == 1 && at < n; at++) {
                if (len == SAID_MAX)
                    memmove(it->said, it->said + SAID_MAX / 2, len -= SAID_MAX / 2);
                it->said[len++] = bytes[at] ? bytes[at] : ' ';
            }
            it->said[len] = '\0';
        }
    }
    pid_t pid = s.pid;
    bool is_late = s.in_fd >= 0 || s.err_fd >= 0;
    if (is_late)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    s.pid = -1;
    backend_stream_close(&s);
    return is_late ? -ETIMEDOUT : WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* Its last line that has words, without the colour and `FATAL:`. */
static const char *last_line(struct instance *it)
{
    size_t len = strlen(it->said);
    while (len && (unsigned char)it->said[len - 1] <= ' ')
        it->said[--len] = '\0';
    const char *line = strrchr(it->said, '\n');
    const char *fatal = strstr(line ? line : it->said, "FATAL:");
    line = fatal ? fatal + strlen("FATAL:") : line ? line + 1 : it->said;
    return line + strspn(line, " \t\033[0m");
}

static enum place_error judge_text(const char *said)
{
    static const struct {
        const char *text;
        enum place_error error;
    } rows[] = {
        {"no instance found", PLACE_LOST},
        {"could not open image", PLACE_NOT_FOUND},
        {"cannot be executed", PLACE_REFUSED},
        {"no such host", PLACE_UNREACHABLE},
        {"connection refused", PLACE_UNREACHABLE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcasestr(said, rows[i].text))
            return rows[i].error;
    return PLACE_REFUSED;
}

/* The directory with the files of a place that is kept. */
static int overlay_of(
    const struct place_row *row, const struct instance *it, char path[2 * PLACE_TEXT])
{
    const struct passwd *user = getpwuid(geteuid());
    const char *home = user ? user->pw_dir : "/nonexistent";
    int n = row->scratch_dir[0]
                ? snprintf(path, (size_t)2 * PLACE_TEXT, "%s", row->scratch_dir)
                : snprintf(path, (size_t)2 * PLACE_TEXT, "%.200s/.hermes", home);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    (void)snprintf(path + n, (size_t)2 * PLACE_TEXT - (size_t)n, "/%.200s", it->name);
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static int start_with(struct backend *b, struct instance *it, uint32_t limits)
{
    const uint32_t *value = b->request.limits.value;
    char overlay[2 * PLACE_TEXT];
    struct strv argv = {0};
    for (const char *const *word = (const char *const[]){it->program, "instance", "start",
             "--containall", "--no-home", "--cleanenv", NULL};
         *word; word++)
        strv_add(&argv, *word);
    if (b->row->keeps) {
        int r = overlay_of(b->row, it, overlay);
        if (r < 0) {
            (void)snprintf(it->said, sizeof(it->said), "%s: %s", overlay, strerror(-r));
            strv_done(&argv);
            return 255;
        }
        strv_add(&argv, "--overlay");
        strv_add(&argv, overlay);
    } else {
        strv_add(&argv, "--writable-tmpfs");
    }
    if (str_eq(b->row->network, "none")) {
        strv_add(&argv, "--net");
        strv_add(&argv, "--network");
        strv_add(&argv, "none");
    }
    if (limits & 1u << PLACE_CPUS) {
        strv_add(&argv, "--cpus");
        strv_add_owned(&argv, xasprintf("%.3f", value[PLACE_CPUS] / 1000.0));
    }
    if (limits & 1u << PLACE_MEMORY) {
        strv_add(&argv, "--memory");
        strv_add_owned(&argv, xasprintf("%uM", value[PLACE_MEMORY]));
    }
    if (limits & 1u << PLACE_PROCESSES) {
        strv_add(&argv, "--pids-limit");
        strv_add_owned(&argv, xasprintf("%u", value[PLACE_PROCESSES]));
    }
    strv_add(&argv, b->row->image);
    strv_add(&argv, it->name);
    int r = run(b, it, argv.items, place_open_ms(b->row));
    strv_done(&argv);
    return r;
}

/* Starts the instance with its limits. Where the machine has no control groups for it, it is
 * refused only if the request or the settings name a limit. */
static enum place_error start(struct backend *b, struct instance *it)
{
    uint32_t wanted = 0;
    for (unsigned i = 0; i < PLACE_LIMITS; i++)
        wanted |= LIMITED & 1u << i && b->request.limits.value[i] ? 1u << i : 0;
    int r = start_with(b, it, wanted);
    if (r > 0 && strstr(it->said, "already exists"))
        r = 0; /* another session of this caller has started it */
    b->in_force = r == 0 ? wanted : 0;
    if (r > 0 && wanted && strstr(it->said, "cgroups")) {
        for (unsigned i = 0; i < PLACE_LIMITS; i++)
            if (b->request.limits.asked & wanted & 1u << i) {
                b->refused = i;
                return backend_fail(b, PLACE_LIMIT, "%.400s", last_line(it));
            }
        r = start_with(b, it, 0);
    }
    if (r == -ETIMEDOUT)
        return backend_fail(b, PLACE_UNREACHABLE, "the instance did not start in time");
    if (r != 0)
        return backend_fail(
            b, judge_text(it->said), "%.400s", r < 0 ? strerror(-r) : last_line(it));
    it->is_there = true;
    return PLACE_FINE;
}

static enum place_error apptainer_open(struct backend *b, bool is_again)
{
    if (is_again) /* exec says whether it is there */
        return PLACE_FINE;
    struct instance *it = b->own = xcalloc(1, sizeof(*it));
    it->lock_fd = -1;
    find_program(b->row, it->program);
    backend_place_name(b, it->name);
    int r = backend_lock(b, clock_ms() + place_open_ms(b->row), &it->lock_fd);
    return r < 0 ? backend_fail(b, PLACE_UNREACHABLE, "%s", strerror(-r)) : start(b, it);
}

static enum place_error apptainer_stream(
    struct backend *b, const char *script, struct backend_stream *ret)
{
    struct instance *it = b->own;
    cleanup_free char *target = xasprintf("instance://%s", it->name);
    char *argv[] = {it->program, (char *)"exec", (char *)"--cleanenv", (char *)"--pwd",
        (char *)"/", target, (char *)"/bin/sh", (char *)"-c", (char *)script, NULL};
    return backend_spawned(b, backend_spawn(argv, NULL, ret));
}

static enum place_error apptainer_judge(struct backend *b, const char *said)
{
    (void)b;
    return judge_text(said);
}

static void apptainer_close(struct backend *b)
{
    struct instance *it = b->own;
    if (!it || !it->is_there || !backend_is_last(it->lock_fd))
        return;
    char *argv[] = {it->program, (char *)"instance", (char *)"stop", it->name, NULL};
    (void)run(b, it, argv, STOP_MS);
    it->is_there = false;
}

const struct backend_ops backend_apptainer = {.open = apptainer_open,
    .stream = apptainer_stream,
    .judge = apptainer_judge,
    .close = apptainer_close};
