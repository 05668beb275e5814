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
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOP_MS = 30000, RECORD_MAX = 256, STEP_MS = 50 };
enum { LIMITED = 1u << PLACE_CPUS | 1u << PLACE_MEMORY | 1u << PLACE_PROCESSES };

struct instance {
    char name[PLACE_TEXT];
    char program[PLACE_TEXT];
    int lock_fd;
    bool is_there;
    char said[BACKEND_SAID + 1];  /* the end of the last command's stderr */
    char overlay[2 * PLACE_TEXT]; /* the directory of a kept place */
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

/* Reads what the program prints until it has ended. The end of the session changes nothing: an
 * instance that is starting can be stopped only afterwards. False when that took too long. */
static bool hear_out(struct backend_stream *s, uint64_t until_ms)
{
    char bytes[1024];
    while (s->in_fd >= 0 || s->err_fd >= 0) {
        uint64_t now = clock_ms();
        struct pollfd fds[] = {{s->in_fd, POLLIN, 0}, {s->err_fd, POLLIN, 0}};
        if (now >= until_ms)
            return false;
        if (poll(fds, 2, (int)(until_ms - now)) < 0)
            continue;
        if (fds[0].revents && read(s->in_fd, bytes, sizeof(bytes)) == 0)
            close_fd(&s->in_fd);
        if (fds[1].revents)
            backend_listen(s);
    }
    return true;
}

/* Runs a command of the program to its end. Returns its exit status, or negative errno. */
static int run(struct instance *it, char *const argv[], uint64_t ms)
{
    struct backend_stream s;
    int status = -1;
    int r = backend_spawn(argv, NULL, &s);
    if (r < 0)
        return r;
    close_fd(&s.out_fd);
    bool is_late = !hear_out(&s, clock_ms() + ms);
    memcpy(it->said, s.said, sizeof(it->said));
    if (is_late) {
        (void)kill(-s.pid, SIGKILL); /* what it has started */
        (void)kill(s.pid, SIGKILL);
    }
    while (waitpid(s.pid, &status, 0) < 0 && errno == EINTR)
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
static int make_overlay(const struct place_row *row, struct instance *it)
{
    const struct passwd *user = getpwuid(geteuid());
    const char *home = user ? user->pw_dir : "/nonexistent";
    char *path = it->overlay;
    int n = row->scratch_dir[0] ? snprintf(path, sizeof(it->overlay), "%s", row->scratch_dir)
                                : snprintf(path, sizeof(it->overlay), "%.200s/.hermes", home);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    (void)snprintf(path + n, sizeof(it->overlay) - (size_t)n, "/%.200s", it->name);
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* The settings that a kept place was made with: in NAME.config beside its files. */
struct record {
    char hash[BACKEND_HASH]; /* of its settings; "": there is no record */
    uint32_t in_force;       /* limits of its instance */
};

static void read_record(int fd, struct record *ret)
{
    char text[RECORD_MAX];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    *ret = (struct record){.in_force = 0};
    text[strcspn(text, "\n")] = '\0';
    size_t len = strspn(text, "0123456789abcdef");
    if (len < sizeof(ret->hash) && text[len] == ' ' &&
        str_parse_u32(text + len + 1, &ret->in_force) == 0)
        memcpy(ret->hash, text, len);
}

static void write_record(int fd, const struct record *record)
{
    char text[RECORD_MAX];
    int n = snprintf(text, sizeof(text), "%s %u\n", record->hash, record->in_force);
    if (ftruncate(fd, 0) == 0 && record->hash[0])
        (void)!pwrite(fd, text, (size_t)n, 0);
}

/* Takes the record for this session alone, until its instance has started. */
static int lock_record(
    const struct backend *b, const struct instance *it, uint64_t until_ms, int *ret_fd)
{
    cleanup_free char *path = xasprintf("%s.config", it->overlay);
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        struct pollfd gone = {b->watch_fd, 0, 0};
        if (clock_ms() >= until_ms || poll(&gone, 1, STEP_MS) > 0)
            return -ETIMEDOUT;
    }
    *ret_fd = take_fd(&fd);
    return 0;
}

static int start_with(struct backend *b, struct instance *it, uint32_t limits)
{
    const uint32_t *value = b->request.limits.value;
    struct strv argv = {0};
    for (const char *const *word = (const char *const[]){it->program, "instance", "start",
             "--containall", "--no-home", "--cleanenv", NULL};
         *word; word++)
        strv_add(&argv, *word);
    if (b->row->keeps) {
        strv_add(&argv, "--overlay");
        strv_add(&argv, it->overlay);
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
    int r = run(it, argv.items, place_open_ms(b->row));
    strv_done(&argv);
    return r;
}

/* Sets b->refused to the first limit that was named and is not in force; false: there is none.
 */
static bool lacks_limit(struct backend *b, uint32_t wanted)
{
    uint32_t lacks = b->request.limits.asked & wanted & ~b->in_force;
    for (uint32_t i = 0; i < PLACE_LIMITS; i++)
        if (lacks & 1u << i) {
            b->refused = (enum place_limit)i;
            return true;
        }
    return false;
}

static enum place_error start_failed(struct backend *b, struct instance *it, int r)
{
    char quoted[PLACE_SAYS];
    place_quote(quoted, sizeof(quoted), last_line(it));
    if (r == -ETIMEDOUT)
        return backend_fail(b, PLACE_UNREACHABLE, "the instance did not start in time");
    bool is_missing = strstr(it->said, "cannot be executed");
    return backend_fail(b, judge_text(it->said), "%s%s", r < 0 ? strerror(-r) : quoted,
        is_missing ? "; install apptainer, or name its program in command" : "");
}

/* Starts the instance with its limits, or joins the one that another session has started: then
 * those limits are in force that its record names. Where the machine has no control groups for
 * it, it is refused only if the request or the settings name a limit. */
static enum place_error start(struct backend *b, struct instance *it, const struct record *was)
{
    uint32_t wanted = 0;
    for (unsigned i = 0; i < PLACE_LIMITS; i++)
        wanted |= LIMITED & 1u << i && b->request.limits.value[i] ? 1u << i : 0;
    b->in_force = wanted;
    int r = start_with(b, it, wanted);
    if (r > 0 && wanted && strstr(it->said, "cgroups")) {
        b->in_force = 0;
        if (lacks_limit(b, wanted)) {
            (void)start_failed(b, it, r);
            return PLACE_LIMIT;
        }
        r = start_with(b, it, 0);
    }
    bool was_there = r > 0 && strstr(it->said, "already exists");
    if (was_there && !was->hash[0])
        return backend_fail(b, PLACE_REFUSED,
            "an instance %s runs that Hermes has no record of; stop it: %s instance stop %s",
            it->name, it->program, it->name);
    it->is_there = r == 0 || was_there || r == -ETIMEDOUT; /* it may have started since */
    if (r != 0 && !was_there)
        return start_failed(b, it, r);
    if (was_there)
        b->in_force = was->in_force;
    if (lacks_limit(b, wanted))
        return backend_fail(b, PLACE_LIMIT,
            "the instance %s already runs without %s; leave the limit out, or end its sessions",
            it->name, place_limit_name(b->refused));
    return PLACE_FINE;
}

/* A kept place that was made with other settings is refused, never replaced: it may hold work.
 */
static enum place_error open_kept(struct backend *b, struct instance *it, uint64_t until_ms)
{
    struct record was, now = {.in_force = 0};
    cleanup_close int fd = -1;
    int r = make_overlay(b->row, it);
    if (r == 0)
        r = lock_record(b, it, until_ms, &fd);
    if (r < 0)
        return backend_fail(b, r == -ETIMEDOUT ? PLACE_UNREACHABLE : PLACE_REFUSED,
            "%s: %s; scratch_dir can name another directory", it->overlay, strerror(-r));
    read_record(fd, &was);
    backend_config_hash(b, now.hash);
    if (was.hash[0] && !str_eq(was.hash, now.hash))
        return backend_fail(b, PLACE_REFUSED,
            "place %s was made with other settings (%.12s, now %.12s); to begin again, end its "
            "sessions and remove %.200s and its .config",
            it->name, was.hash, now.hash, it->overlay);
    write_record(fd, &now); /* if this process dies now, no limit is claimed */
    enum place_error error = start(b, it, &was);
    now.in_force = b->in_force;
    write_record(fd, error ? &was : &now);
    return error;
}

static enum place_error apptainer_open(struct backend *b, bool is_again)
{
    if (is_again) /* exec says whether it is there */
        return PLACE_FINE;
    struct instance *it = b->own = xcalloc(1, sizeof(*it));
    uint64_t until_ms = clock_ms() + place_open_ms(b->row);
    it->lock_fd = -1;
    find_program(b->row, it->program);
    backend_place_name(b, it->name);
    int r = backend_lock(b, until_ms, &it->lock_fd);
    if (r < 0)
        return backend_fail(b, PLACE_UNREACHABLE, "%s", strerror(-r));
    return b->row->keeps ? open_kept(b, it, until_ms)
                         : start(b, it, &(struct record){.in_force = 0});
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
    (void)run(it, argv, STOP_MS);
    it->is_there = false;
}

const struct backend_ops backend_apptainer = {.open = apptainer_open,
    .stream = apptainer_stream,
    .judge = apptainer_judge,
    .close = apptainer_close};
