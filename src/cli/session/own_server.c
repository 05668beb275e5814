/* SPDX-License-Identifier: Apache-2.0 */

/* See own_server.h. Between the command and the server is a keeper: a process with a session of
 * its own, which no Ctrl-C reaches. It waits for the end of the command (a socket closes, also
 * after SIGKILL), ends the server and removes the directory. If the keeper itself is killed,
 * the server gets SIGTERM, and the command removes the directory. */

#include "cli/session/own_server.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/os/process.h"
#include "base/str.h"
#include "cli/cli.h"
#include "lang/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* START_MS is far beyond what a start takes on a busy machine. */
enum { DEFAULT_PORT = 8000, START_MS = 120000, STOP_MS = 20000, LOG_MAX = 1 << 16 };

bool own_server_is_needed(const struct client *client)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
        .sin_port = htons(DEFAULT_PORT),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (!client->is_default)
        return false;
    cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 &&
           errno == ECONNREFUSED;
}

/* --- the directory */

/* Its path goes into a settings file and into the address of a socket. */
static const char *temporary_directory(void)
{
    const char *dir = getenv("TMPDIR");
    bool is_plain = dir && dir[0] == '/' && strlen(dir) < 32 &&
                    strspn(dir, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-_./") == strlen(dir);
    return is_plain ? dir : "/tmp";
}

/* Links the language of a session in the directory of languages. */
static int link_language(int dir_fd, const char *language, struct err *err)
{
    CLEANUP(runtime_registry_done) struct runtime_registry found = {0};
    const struct lang_dirs dirs = {.runtimes = getenv("HERMES_RUNTIMES")};
    int r = runtime_load(&found, &dirs, language, err);
    const struct runtime *rt = r < 0 ? NULL : runtime_find(&found, language);
    if (r < 0)
        return r;
    if (!rt || !rt->run.session.count)
        return err_field(err, "language",
            "there are no sessions of %.32s; use python, javascript or bash", language);
    cleanup_free char *name = xasprintf("runtimes/%s", rt->name);
    if (symlinkat(rt->dir, dir_fd, name) < 0 && errno != EEXIST)
        return err_set(err, err_code_of(errno), errno, "%s: %s", name, strerror(errno));
    return 0;
}

/* Links only the shell and the parser of commands: a start that builds the roots of all
 * languages takes ten seconds. */
static int link_runtimes(int dir_fd)
{
    static const char *const names[] = {"base.json", "bash", "shell-parse"};
    const struct lang_dirs dirs = {.runtimes = getenv("HERMES_RUNTIMES")};
    cleanup_free char *from = runtime_main_dir(&dirs);
    if (!from || mkdirat(dir_fd, "runtimes", 0755) < 0)
        return from ? -errno : -ENOENT;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        cleanup_free char *target = xasprintf("%s/%s", from, names[i]);
        cleanup_free char *name = xasprintf("runtimes/%s", names[i]);
        if (symlinkat(target, dir_fd, name) < 0)
            return -errno;
    }
    return 0;
}

static int write_settings(int dir_fd, const struct own_settings *settings)
{
    cleanup_close int fd =
        openat(dir_fd, "settings", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fs_write_all(fd, settings->text.data, settings->text.len);
}

/* The server of root has a user of its own, who must reach its files. The socket is for root
 * and that user only. */
static int make_directory(struct own_server *s, struct err *err)
{
    (void)snprintf(s->dir, sizeof(s->dir), "%s/hermes-XXXXXX", temporary_directory());
    if (!mkdtemp(s->dir) || (geteuid() == 0 && chmod(s->dir, 0711) < 0))
        return err_set(
            err, ERR_UNAVAILABLE, errno, "cannot make %s: %s", s->dir, strerror(errno));
    (void)snprintf(s->unix_path, sizeof(s->unix_path), "%s/socket", s->dir);
    return 0;
}

static int fill_directory(const struct own_server *s, const struct own_settings *settings,
    const char *language, struct err *err)
{
    cleanup_close int fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : link_runtimes(fd);
    if (r == 0)
        r = write_settings(fd, settings);
    if (r < 0)
        return err_set(err, ERR_UNAVAILABLE, -r, "%s: %s", s->dir, strerror(-r));
    return language ? link_language(fd, language, err) : 0;
}

static void remove_directory(const struct own_server *s)
{
    if (s->dir[0])
        (void)fs_remove_tree(AT_FDCWD, s->dir);
}

/* --- the keeper */

/* The address at which the monitor says that the server is ready. */
static int open_notify(const struct own_server *s)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s/notify", s->dir);
    cleanup_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0)
        return -1;
    return take_fd(&fd);
}

/* Becomes `hermes serve`. */
static void become_server(const struct own_server *s, char *const *env, pid_t keeper)
{
    cleanup_free char *path = fs_beside_self("hermes");
    cleanup_free char *settings = xasprintf("%s/settings", s->dir);
    char *argv[] = {(char *)"hermes", (char *)"serve", (char *)"--config", settings, NULL};
    process_reset_signals();
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (path && getppid() == keeper && chdir(s->dir) == 0)
        (void)execve(path, argv, env);
    _exit(EXIT_HERMES);
}

/* Standard input is empty; the rest goes into the log. No other descriptor of the caller's
 * stays open: a pipe that it reads from ends with the command. */
static int take_descriptors(const struct own_server *s, int link)
{
    cleanup_free char *log = xasprintf("%s/log", s->dir);
    if (dup2(link, 3) < 0)
        return -errno;
    (void)syscall(SYS_close_range, 4u, ~0u, 0u);
    cleanup_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    cleanup_close int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (null < 0 || out < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(out, STDERR_FILENO) < 0 || fcntl(3, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    return 3;
}

/* Waits until the command or the server has ended. */
static void watch(int link, int notify, int server)
{
    char text[64];
    struct pollfd fds[] = {{link, POLLIN, 0}, {server, POLLIN, 0}, {notify, POLLIN, 0}};
    for (;;) {
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents || fds[1].revents)
            return;
        ssize_t n = fds[2].revents ? recv(notify, text, sizeof(text) - 1, 0) : -1;
        if (n > 0) {
            text[n] = '\0';
            if (str_has_prefix(text, "READY=1"))
                (void)send(link, "r", 1, MSG_NOSIGNAL);
        }
    }
}

static void keep(const struct own_server *s, int link, char *const *env)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
    pid_t self = getpid();
    (void)setsid();
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        (void)signal(ignored[i], SIG_IGN);
    link = take_descriptors(s, link);
    int notify = link < 0 ? -1 : open_notify(s);
    pid_t server = notify < 0 ? -1 : fork();
    if (server == 0)
        become_server(s, env, self);
    int server_fd = server > 0 ? (int)syscall(SYS_pidfd_open, server, 0u) : -1;
    if (server_fd >= 0)
        watch(link, notify, server_fd);
    if (server > 0) {
        (void)kill(server, SIGTERM);
        process_await(server, STOP_MS);
    }
    if (link >= 0) { /* the command reads the log before the directory goes */
        char byte;
        (void)shutdown(link, SHUT_WR);
        while (recv(link, &byte, 1, 0) > 0)
            ;
    }
    remove_directory(s);
}

/* --- the command */

/* The text of a line of the log that says what is wrong; NULL for other lines. */
static char *problem_of(const char *line)
{
    static const char complaint[] = "hermes serve: ";
    if (str_has_prefix(line, complaint))
        return xstrdup(line + strlen(complaint));
    json_t *json = json_loads(line, 0, NULL);
    const char *reason = json_string_value(json_object_get(json, "reason"));
    bool is_error = str_eq(json_string_value(json_object_get(json, "level")), "error");
    const char *what = json_string_value(json_object_get(json, "msg"));
    char *text = is_error && what
                     ? xasprintf("%s%s%s", what, reason ? ": " : "", reason ? reason : "")
                     : NULL;
    json_decref(json);
    return text;
}

/* The first problem is the cause of the others. */
static int tell_failure(const struct own_server *s, struct err *err)
{
    cleanup_buf struct buf log;
    cleanup_free char *path = xasprintf("%s/log", s->dir);
    cleanup_free char *problem = NULL;
    buf_init(&log, LOG_MAX);
    (void)fs_read_file(AT_FDCWD, path, &log);
    for (char *at = log.data, *line; !problem && (line = strsep(&at, "\n"));)
        problem = problem_of(line);
    return err_set(err, ERR_UNAVAILABLE, EIO, "the server of this command did not start: %s",
        problem ? problem : "it did not say why; try `hermes doctor`");
}

static int wait_until_ready(const struct own_server *s, struct err *err)
{
    char byte;
    struct pollfd ready = {.fd = s->link, .events = POLLIN};
    int r;
    while ((r = poll(&ready, 1, START_MS)) < 0 && errno == EINTR)
        ;
    return r == 1 && recv(s->link, &byte, 1, 0) == 1 ? 0 : tell_failure(s, err);
}

static int start_keeper(struct own_server *s, char *const *env, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, err_code_of(errno), errno,
            "cannot make a socket for the server of this command: %s", strerror(errno));
    s->keeper = fork();
    if (s->keeper == 0) {
        (void)close(pair[0]);
        keep(s, pair[1], env);
        _exit(0);
    }
    (void)close(pair[1]);
    s->link = pair[0];
    return s->keeper < 0 ? err_set(err, err_code_of(errno), errno,
                               "cannot start a process for the server of this command: %s",
                               strerror(errno))
                         : 0;
}

int own_server_start(struct own_server *s, const struct own_wish *wish, struct err *err)
{
    CLEANUP(own_settings_done) struct own_settings settings = {0};
    *s = (struct own_server){.keeper = -1, .link = -1};
    int r = make_directory(s, err);
    if (r < 0) {
        s->dir[0] = '\0';
        return r;
    }
    r = own_settings_make(s->dir, wish, &settings, err);
    (void)snprintf(s->backend, sizeof(s->backend), "%s", settings.backend);
    for (size_t i = 0; r == 0 && wish->lists_all && i < settings.notes.count; i++)
        (void)fprintf(stderr, "%s\n", settings.notes.items[i]);
    if (r == 0 && settings.warning)
        (void)fprintf(stderr, "hermes: %s\n", settings.warning);
    if (r == 0)
        r = fill_directory(s, &settings, wish->language, err);
    if (r == 0)
        r = start_keeper(s, settings.env.items, err);
    if (r == 0)
        r = wait_until_ready(s, err);
    if (r < 0)
        own_server_stop(s);
    return r;
}

void own_server_stop(struct own_server *s)
{
    close_fd(&s->link);
    if (s->keeper > 0)
        (void)waitpid(s->keeper, NULL, 0);
    s->keeper = -1;
    remove_directory(s);
    s->dir[0] = '\0';
}
