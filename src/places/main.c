/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-places opens places (proto/place.h). It has the sealed rows; a request names one by
 * its number. Each session has a process. The keys of hermes-reach are elsewhere: this program
 * has the user of `local` commands, which can read its memory. */

#include "places/places.h"

#include "backend/docker.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/process.h"
#include "base/os/sys.h"
#include "base/str.h"
#include "places/slots.h"
#include "proto/place_ends.h"
#include "proto/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REAP_MS = 1000, END_S = 120, TIDY_MS = 5000, ATTEMPTS_MAX = 8 };

/* The directory for sockets of ssh connections, in /tmp. */
#define CONTROL_PREFIX "hermes-con-"
#define CONTROL_NAME CONTROL_PREFIX "XXXXXX"

struct places {
    const struct place_table *table;
    const char *shell;
    char control_dir[32];
    int control_fd; /* locks it while this process or one of its children lives */
    int requests;
    int starter_fd; /* -1: no row permits sudo */
    pid_t monitor;
    pid_t tidy;       /* cleans up behind sessions in containers; 0: it does not run */
    uint64_t tidy_ms; /* when it was started */
    struct slots slots;
};

static int ended_fd;

/* hermes-places or the server is gone: the session ends as if the server had ended it, and its
 * place with it. A descriptor of the server that blocks cannot keep it: SIGALRM ends it. */
static void on_end(int number)
{
    (void)number;
    (void)alarm(END_S);
    (void)shutdown(ended_fd, SHUT_RDWR);
}

static struct place_head head_of(int words_fd)
{
    struct place_head head = {0};
    if (pread(words_fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head))
        head = (struct place_head){0};
    head.owner[PLACE_ID - 1] = head.session[PLACE_ID - 1] = '\0';
    return head;
}

/* A request without a session only asks whether the place is there. */
static bool is_probe(int words_fd)
{
    return !head_of(words_fd).session[0];
}

static bool are_right(
    const struct places *p, const struct place_request *request, const int *fds)
{
    static const struct {
        int fd;
        enum place_end kind;
        bool has_probe;
    } rows[] = {
        {PLACE_SOCKET, PLACE_END_MESSAGES, true},
        {PLACE_ERR, PLACE_END_PIPE, true},
        {PLACE_OUT, PLACE_END_PIPE, false},
        {PLACE_CHANNEL, PLACE_END_STREAM, false},
    };
    bool are = request->row < p->table->count && place_words_are(fds[PLACE_WORDS]);
    bool probes = are && is_probe(fds[PLACE_WORDS]);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        are = are &&
              ((probes && !rows[i].has_probe) || place_end_is(rows[i].kind, fds[rows[i].fd]));
    return are;
}

/* A pidfd of the process that made the socket. The session ends with it, also if descriptors
 * that it has passed around would keep the socket open. */
static int server_of(const struct places *p, int socket)
{
    struct ucred made_by;
    socklen_t len = sizeof(made_by);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &made_by, &len) < 0 ||
        made_by.pid == p->monitor)
        return -EPROTO;
    return (int)syscall(SYS_pidfd_open, made_by.pid, 0);
}

static bool has_apptainer(const struct place_table *table)
{
    bool has = false;
    for (uint32_t i = 0; i < table->count; i++)
        has = has || table->rows[i].kind == PLACE_APPTAINER;
    return has;
}

/* In a child: closes what only the parent needs. */
static void close_of_parent(struct places *p)
{
    (void)close(PLACES_FD);
    close_fd(&p->requests);
    for (size_t i = 0; i < SLOTS_MAX; i++)
        if (p->slots.items[i].pid)
            close_fd(&p->slots.items[i].server_fd);
}

/* In the child. */
static _Noreturn void serve_session(
    struct places *p, uint32_t row, int fds[PLACE_FDS], pid_t parent)
{
    close_of_parent(p);
    if (!p->table->rows[row].may_gain)
        close_fd(&p->starter_fd);
    struct backend backend = {.row = &p->table->rows[row],
        .number = row,
        .control_dir = p->control_dir,
        .shell = p->shell,
        .shell_len = p->table->shell_len,
        .hash = p->table->shell_hash,
        .instance = p->table->instance,
        .starter_fd = p->starter_fd};
    ended_fd = fds[PLACE_SOCKET];
    (void)signal(SIGTERM, on_end);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)signal(SIGPIPE, SIG_IGN);
    if (getppid() != parent || (backend.row->kind != PLACE_APPTAINER &&
                                   has_apptainer(p->table) && confine_clients(false) < 0))
        _exit(0);
    if (confine_writing(backend.row, p->control_dir) < 0)
        _exit(0);
    if (backend.row->kind == PLACE_DOCKER && confine_engine(p->control_dir) < 0)
        _exit(0);
    if (is_probe(fds[PLACE_WORDS]))
        backend_answer_probe(&backend, fds);
    else
        backend_relay(&backend, fds);
    _exit(0);
}

static void reap(struct places *p)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        slots_leave(&p->slots, pid);
        p->tidy = pid == p->tidy ? 0 : p->tidy;
    }
    slots_end_orphans(&p->slots);
}

static void refuse(int socket)
{
    const struct place_event event = {
        .event = {.kind = EVENT_FAILED, .flags = PLACE_UNREACHABLE},
        .words = "there are too many sessions on backends; try again later"};
    (void)send(socket, &event, sizeof(event), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void start_session(struct places *p, uint32_t row, int fds[PLACE_FDS])
{
    const struct place_head head = head_of(fds[PLACE_WORDS]);
    struct slot *slot = slots_find(&p->slots, head.owner);
    cleanup_close int server = server_of(p, fds[PLACE_SOCKET]);
    if (server < 0)
        return;
    if (!slot) {
        refuse(fds[PLACE_SOCKET]);
        return;
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        serve_session(p, row, fds, parent);
    if (pid > 0)
        slots_take(&p->slots, slot, pid, head.owner, take_fd(&server));
}

/* A refused request is closed: the server sees the end of its socket. */
static bool take_request(struct places *p)
{
    struct place_request request;
    int fds[PLACE_FDS];
    unsigned count = 0;
    ssize_t n =
        fdpass_receive_now(p->requests, &request, sizeof(request), fds, PLACE_FDS, &count);
    if (n < 0 || (n == 0 && fdpass_is_closed(p->requests)))
        return n == -EMSGSIZE || n == -EAGAIN;
    reap(p);
    if (n == (ssize_t)sizeof(request) && count == PLACE_FDS && are_right(p, &request, fds))
        start_session(p, request.row, fds);
    fdpass_drop(fds, count);
    return true;
}

/* Ends the connections that sessions have shared, and removes their directory. */
static void close_connections(const char *control_dir)
{
    DIR *dir = opendir(control_dir);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char option[300];
        struct backend_stream stream;
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(option, sizeof(option), "ControlPath=%s/%s", control_dir, entry->d_name);
        char *argv[] = {(char *)"ssh", (char *)"-F", (char *)"none", (char *)"-o", option,
            (char *)"-O", (char *)"exit", (char *)"x", NULL};
        if (backend_spawn(argv, NULL, &stream) == 0)
            backend_stream_close(&stream);
    }
    if (dir)
        (void)closedir(dir);
    (void)fs_remove_tree(AT_FDCWD, control_dir);
}

/* The same for what a process of this user has left that was killed. One in use is locked. */
static void close_left_connections(void)
{
    DIR *tmp = opendir("/tmp");
    struct dirent *entry;
    while (tmp && (entry = readdir(tmp))) {
        struct stat st;
        char path[sizeof("/tmp/" CONTROL_NAME)];
        if (!str_has_prefix(entry->d_name, CONTROL_PREFIX) ||
            strlen(entry->d_name) != strlen(CONTROL_NAME))
            continue;
        cleanup_close int fd =
            openat(dirfd(tmp), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() ||
            flock(fd, LOCK_EX | LOCK_NB) < 0)
            continue;
        (void)snprintf(path, sizeof(path), "/tmp/%s", entry->d_name);
        close_connections(path);
    }
    if (tmp)
        (void)closedir(tmp);
}

/* Starts it again when it has ended: without it containers would stay. */
static void start_tidy(struct places *p)
{
    bool has_docker = false;
    for (uint32_t i = 0; i < p->table->count; i++)
        has_docker = has_docker || p->table->rows[i].kind == PLACE_DOCKER;
    if (!has_docker || p->tidy || (p->tidy_ms && clock_ms() - p->tidy_ms < TIDY_MS))
        return;
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid != 0) {
        p->tidy = pid > 0 ? pid : 0;
        p->tidy_ms = clock_ms();
        return;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    close_of_parent(p);
    close_fd(&p->starter_fd);
    if (getppid() == parent && confine_engine(p->control_dir) == 0)
        docker_tidy(p->table, p->control_dir);
    _exit(0);
}

/* Until it is locked, another instance may take it for one that was left, and remove it. */
static int make_control_dir(struct places *p)
{
    for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        struct stat mine, there;
        (void)snprintf(p->control_dir, sizeof(p->control_dir), "/tmp/" CONTROL_NAME);
        if (!mkdtemp(p->control_dir))
            return -errno;
        p->control_fd = open(p->control_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (p->control_fd >= 0 && flock(p->control_fd, LOCK_EX | LOCK_NB) == 0 &&
            fstat(p->control_fd, &mine) == 0 && lstat(p->control_dir, &there) == 0 &&
            mine.st_ino == there.st_ino)
            return 0;
        close_fd(&p->control_fd);
    }
    return -EBUSY;
}

/* Ends when the monitor is gone or stops the program. Without the starter nothing works on
 * `local`: the monitor then starts all of hermes-places again. */
static int serve(struct places *p)
{
    for (;;) {
        struct pollfd ready[] = {
            {PLACES_FD, POLLIN, 0}, {p->requests, POLLIN, 0}, {p->starter_fd, 0, 0}};
        start_tidy(p);
        (void)poll(ready, 3, REAP_MS);
        reap(p);
        if (ready[0].revents || (ready[1].revents && !take_request(p)))
            return 0;
        if (ready[2].revents)
            return 1;
    }
}

/* The monitor's packet: the table with the far shell behind it, and the socket of requests. */
static int receive_table(struct places *p)
{
    char mark;
    int fds[PLACES_FDS];
    unsigned count = 0;
    struct stat st;
    ssize_t n = fdpass_receive(PLACES_FD, &mark, sizeof(mark), fds, PLACES_FDS, &count);
    if (n <= 0 || count != PLACES_FDS)
        return n < 0 ? (int)n : -EPROTO;
    cleanup_close int table = fds[PLACES_TABLE];
    p->requests = fds[PLACES_REQUESTS];
    int seals = fcntl(table, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_WRITE) || fstat(table, &st) < 0 ||
        st.st_size < (off_t)sizeof(*p->table))
        return -EPROTO;
    p->table = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, table, 0);
    if (p->table == MAP_FAILED)
        return -errno;
    p->shell = (const char *)(p->table + 1);
    return (off_t)(sizeof(*p->table) + p->table->shell_len) == st.st_size ? 0 : -EPROTO;
}

static int fail(const char *what, int error)
{
    log_event(LOG_ERROR, what, "error", strerror(-error), (char *)NULL);
    return 1;
}

int main(void)
{
    static struct places p;
    p.monitor = getppid();
    /* Before there is anything to see: a `local` command of an earlier session has the same
     * user, and a file /proc/PID/mem that it has opened stays open. The starter inherits it. */
    int r = prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
    if (r == 0)
        r = sys_close_range(PLACES_FD + 1, ~0u, 0);
    if (r == 0)
        r = receive_table(&p);
    if (r < 0)
        return fail("hermes-places is started by hermes-monitor; run `hermes serve`", r);
    if ((r = starter_start(p.table, &p.starter_fd)) < 0)
        return fail("cannot start the process that starts local commands", r);
    if ((r = process_give_up()) < 0 || (r = confine_clients(has_apptainer(p.table))) < 0)
        return fail("cannot give up privileges", r);
    close_left_connections();
    if ((r = make_control_dir(&p)) < 0)
        return fail("cannot make a directory for connections of ssh", r);
    r = serve(&p);
    close_connections(p.control_dir);
    close_left_connections();
    return r;
}
