/* SPDX-License-Identifier: Apache-2.0 */

/* Versions of the toolchains, for `hermes runtimes` and GET /v1/runtimes. The commands come
 * from the operator (runtime.json). They run on the host, without a shell and with a fixed
 * small environment, all at once, because R alone takes a quarter of a second. Root does not
 * run them as root: a toolchain may lie in somebody's home directory. Results are kept in the
 * state directory together with the program's inode, size and time, and are renewed when one of
 * these changes. */

#include "lang/runtime.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/os/fs.h"
#include "base/os/process.h"
#include "base/str.h"
#include "lang/state_dir.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    VERSION_TIMEOUT_MS = 10000,
    VERSION_CPU_S = 10,
    VERSION_TEXT_MAX = 4096, /* bytes of an answer */
    VERSION_FILES_MAX = 256, /* open descriptors */
    CACHE_MAX = 256 * 1024,  /* bytes of versions.json */
    NOT_EXECUTED = 127,
    /* The user that commands of root run as. Distributions leave this id free, and the server's
     * own is another one, so the commands can read no file of Hermes. */
    VERSION_ID = 65533,
};

/* One running command. */
struct query {
    struct runtime *rt;
    char identity[128]; /* inode, size and time of the program's file */
    struct strv argv;
    struct buf text;
    pid_t pid;
    int fd;
};

static void query_done(struct query *q)
{
    strv_done(&q->argv);
    buf_done(&q->text);
    close_fd(&q->fd);
}

/* Builds the argument list. {home} at the beginning of the program is the only placeholder. */
static int make_argv(struct query *q)
{
    const struct strv *templates = &q->rt->version_argv;
    struct stat st;

    for (size_t i = 0; i < templates->count; i++) {
        const char *text = templates->items[i];

        if (i == 0 && str_has_prefix(text, "{home}/") && q->rt->home != NULL)
            strv_add_owned(&q->argv, xasprintf("%s%s", q->rt->home, text + strlen("{home}")));
        else
            strv_add(&q->argv, text);
    }
    if (q->argv.count == 0 || stat(q->argv.items[0], &st) < 0)
        return -ENOENT;
    (void)snprintf(q->identity, sizeof(q->identity), "%ju %ju %jd.%09ld", (uintmax_t)st.st_ino,
        (uintmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    return 0;
}

static void limit(int resource, rlim_t value)
{
    (void)setrlimit(resource, &(struct rlimit){value, value});
}

/* Runs in the child. The home directory of the toolchain is the working directory: the new user
 * may not be allowed to walk the path to it (~/.rustup of root), and finds the program and its
 * libraries from there. */
static void become_command(const struct query *q, int output)
{
    /* HOME is not a missing directory: go would create one for its counters. */
    static char *const env[] = {(char *)"LD_LIBRARY_PATH=lib", (char *)"PATH=/usr/bin:/bin",
        (char *)"HOME=/dev/null", (char *)"LANG=C.UTF-8", (char *)"DENO_NO_UPDATE_CHECK=1",
        (char *)"NO_COLOR=1", NULL};
    const char *home = q->rt->home;
    const char *program = q->argv.items[0];
    bool is_own = home != NULL && !str_eq(home, "/usr") && str_has_prefix(program, home);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    process_reset_signals();
    if (setpgid(0, 0) < 0 || null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 ||
        dup2(output, 2) < 0 || chdir(is_own ? home : "/") < 0 ||
        syscall(SYS_close_range, 3, ~0U, 0) < 0)
        return;
    limit(RLIMIT_CPU, VERSION_CPU_S);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_NOFILE, VERSION_FILES_MAX);
    if (process_drop(VERSION_ID, VERSION_ID) < 0)
        return;
    (void)execve(
        is_own ? program + strlen(home) + 1 : program, q->argv.items, is_own ? env : env + 1);
}

static void start(struct query *q)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    q->pid = fork();
    if (q->pid == 0) {
        become_command(q, ends[1]);
        _exit(NOT_EXECUTED);
    }
    if (q->pid > 0)
        q->fd = take_fd(&ends[0]);
    close_fd(&ends[0]);
    close_fd(&ends[1]);
}

/* The first number with a dot in it, such as 12.2.0; NULL when there is none. */
static char *find_number(const char *text)
{
    for (const char *p = text; p != NULL && *p != '\0'; p++) {
        if (!isdigit((unsigned char)*p) ||
            (p > text && isalnum((unsigned char)p[-1]) && p[-1] != 'v' && p[-1] != 'o'))
            continue;
        size_t len = strspn(p, "0123456789.");
        while (len > 0 && p[len - 1] == '.')
            len--;
        if (memchr(p, '.', len) != NULL)
            return xstrndup(p, len);
        p += len - 1;
    }
    return NULL;
}

/* Reads all output until every command has ended or VERSION_TIMEOUT_MS have passed. */
static void read_answers(struct query *queries, size_t count)
{
    uint64_t end_ms = clock_ms() + VERSION_TIMEOUT_MS;
    struct pollfd *fds = xcalloc(count, sizeof(*fds));

    for (;;) {
        size_t open_count = 0;
        uint64_t now_ms = clock_ms();

        for (size_t i = 0; i < count; i++) {
            fds[i] = (struct pollfd){.fd = queries[i].fd, .events = POLLIN};
            open_count += queries[i].fd >= 0;
        }
        if (open_count == 0 || now_ms >= end_ms)
            break;
        if (poll(fds, count, (int)(end_ms - now_ms)) < 0 && errno != EINTR)
            break;
        for (size_t i = 0; i < count; i++) {
            if (fds[i].fd >= 0 && fds[i].revents != 0 &&
                buf_read_fd(&queries[i].text, fds[i].fd, 512) <= 0)
                close_fd(&queries[i].fd);
        }
    }
    free(fds);
}

/* `number` is what the version command printed. */
static void set_version(struct runtime *rt, const char *number)
{
    const struct version_of *of = &rt->version_of;

    if (of->program == NULL) {
        rt->version = xstrdup(number);
        return;
    }
    rt->compiler = xasprintf("%s %s", of->program, number);
    if (strverscmp(number, of->since) >= 0)
        rt->version = xstrdup(of->language);
}

static void end(struct query *q, json_t *cache)
{
    int status;

    if (q->pid <= 0)
        return;
    (void)kill(-q->pid, SIGKILL); /* and all processes that the command started */
    (void)kill(q->pid, SIGKILL);
    while (waitpid(q->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    cleanup_free char *number = find_number(q->text.data);
    if (number == NULL)
        return;
    (void)json_object_set_new(cache, q->argv.items[0],
        json_pack("{s:s, s:s}", "file", q->identity, "version", number));
    set_version(q->rt, number);
}

static json_t *load_cache(int state_fd)
{
    cleanup_buf struct buf text = {0};
    json_t *cache = NULL;

    buf_init(&text, CACHE_MAX);
    if (state_fd >= 0 && fs_read_file(state_fd, "versions.json", &text) == 0)
        cache = json_loadb(text.data, text.len, 0, NULL);
    if (!json_is_object(cache)) {
        json_decref(cache);
        cache = json_object();
    }
    return cache;
}

static void save_cache(int state_fd, json_t *cache)
{
    cleanup_free char *text = json_dumps(cache, JSON_INDENT(2) | JSON_SORT_KEYS);
    char name[ID_MAX];

    if (state_fd < 0 || text == NULL)
        return;
    id_make(".version-", name);
    cleanup_close int fd =
        openat(state_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (fs_write_all(fd, text, strlen(text)) < 0 ||
        renameat(state_fd, name, state_fd, "versions.json") < 0)
        (void)unlinkat(state_fd, name, 0);
}

static bool known(struct query *q, json_t *cache)
{
    json_t *entry = json_object_get(cache, q->argv.items[0]);
    const char *file = json_string_value(json_object_get(entry, "file"));
    const char *version = json_string_value(json_object_get(entry, "version"));

    if (file == NULL || version == NULL || !str_eq(file, q->identity))
        return false;
    set_version(q->rt, version);
    return true;
}

void runtime_find_versions(struct runtime_registry *reg, const char *state_dir)
{
    cleanup_free char *state = NULL;
    cleanup_close int state_fd = state_dir_open(state_dir, &state, NULL);
    json_t *cache = load_cache(state_fd);
    struct query *queries = xcalloc(reg->count, sizeof(*queries));
    size_t asked = 0;

    for (size_t i = 0; i < reg->count; i++) {
        struct query *q = &queries[i];

        *q = (struct query){.rt = &reg->items[i], .fd = -EBADF};
        buf_init(&q->text, VERSION_TEXT_MAX);
        if (q->rt->available && q->rt->version == NULL && q->rt->compiler == NULL &&
            make_argv(q) == 0 && !known(q, cache)) {
            start(q);
            asked++;
        }
    }
    read_answers(queries, reg->count);
    for (size_t i = 0; i < reg->count; i++) {
        end(&queries[i], cache);
        query_done(&queries[i]);
    }
    if (asked > 0)
        save_cache(state_fd, cache);
    json_decref(cache);
    free(queries);
}
