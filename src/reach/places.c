/* SPDX-License-Identifier: Apache-2.0 */

/* The half of hermes-reach that opens places (proto/place.h): a process of its own, because it
 * executes programs, which the other half may not. It has the sealed rows; a request names one
 * by its number. Each session has a process. */

#include "reach/reach.h"

#include "backend/docker.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/process.h"
#include "base/os/sys.h"
#include "proto/spawn.h"
#include "reach/slots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REAP_MS = 1000 };

struct places {
    const struct place_table *table;
    const char *shell;
    char control_dir[32];
    int socket;
    int starter_fd;
    struct slots slots;
};

static bool are_right(const struct places *p, const struct reach_call *call, int words_fd)
{
    struct stat st;
    int seals = fcntl(words_fd, F_GET_SEALS);
    return call->body_len < p->table->count && seals >= 0 && (seals & F_SEAL_WRITE) &&
           fstat(words_fd, &st) == 0 && st.st_size > (off_t)sizeof(struct place_head) &&
           st.st_size <= PLACE_WORDS_MAX;
}

static int ended_fd;

/* hermes-reach is gone: the session ends as if the server had ended it, and its place with it.
 */
static void on_end(int number)
{
    (void)number;
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

static bool has_apptainer(const struct place_table *table)
{
    bool has = false;
    for (uint32_t i = 0; i < table->count; i++)
        has = has || table->rows[i].kind == PLACE_APPTAINER;
    return has;
}

static _Noreturn void serve_session(
    const struct places *p, uint32_t row, int fds[PLACE_FDS], pid_t parent)
{
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
                                   has_apptainer(p->table) && confine_places(false) < 0))
        _exit(0);
    if (backend.row->kind == PLACE_DOCKER && confine_engine(p->control_dir) < 0)
        _exit(0);
    /* A request without a session only asks whether the place is there. */
    if (!head_of(fds[PLACE_WORDS]).session[0])
        backend_answer_probe(&backend, fds);
    else
        backend_relay(&backend, fds);
    _exit(0);
}

static void reap(struct places *p)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        slots_leave(&p->slots, pid);
}

/* Says to the server why there is no place. */
static void refuse(const int fds[PLACE_FDS])
{
    const struct spawn_event event = {.kind = EVENT_FAILED, .flags = PLACE_UNREACHABLE};
    (void)fcntl(fds[PLACE_ERR], F_SETFL, O_NONBLOCK);
    ssize_t n =
        dprintf(fds[PLACE_ERR], "there are too many sessions on backends; try again later\n");
    (void)n;
    (void)send(fds[PLACE_SOCKET], &event, sizeof(event), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void start_session(struct places *p, uint32_t row, int fds[PLACE_FDS])
{
    const struct place_head head = head_of(fds[PLACE_WORDS]);
    struct slot *slot = slots_find(&p->slots, head.owner);
    if (!slot) {
        refuse(fds);
        return;
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        serve_session(p, row, fds, parent);
    if (pid > 0)
        slots_take(&p->slots, slot, pid, head.owner);
}

/* A refused request is closed: the server sees the end of its socket. */
static bool take_request(struct places *p)
{
    struct reach_call call;
    int fds[PLACE_FDS];
    unsigned count = 0;
    ssize_t n = fdpass_receive(p->socket, &call, sizeof(call), fds, PLACE_FDS, &count);
    if (n <= 0)
        return n == -EMSGSIZE;
    reap(p);
    if (n == (ssize_t)sizeof(call) && count == PLACE_FDS &&
        are_right(p, &call, fds[PLACE_WORDS]))
        start_session(p, call.body_len, fds);
    for (unsigned i = 0; i < count; i++)
        (void)close(fds[i]);
    return true;
}

/* Ends the connections that sessions have shared. */
static void close_connections(const struct places *p)
{
    DIR *dir = opendir(p->control_dir);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char option[300];
        struct backend_stream stream;
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(
            option, sizeof(option), "ControlPath=%s/%s", p->control_dir, entry->d_name);
        char *argv[] = {(char *)"ssh", (char *)"-F", (char *)"none", (char *)"-o", option,
            (char *)"-O", (char *)"exit", (char *)"x", NULL};
        if (backend_spawn(argv, NULL, &stream) == 0)
            backend_stream_close(&stream);
    }
    if (dir)
        (void)closedir(dir);
    (void)fs_remove_tree(AT_FDCWD, p->control_dir);
}

static void start_tidy(const struct places *p)
{
    bool has_docker = false;
    for (uint32_t i = 0; i < p->table->count; i++)
        has_docker = has_docker || p->table->rows[i].kind == PLACE_DOCKER;
    pid_t parent = getpid();
    if (!has_docker || fork() != 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)close(p->socket);
    if (getppid() == parent && confine_engine(p->control_dir) == 0)
        docker_tidy(p->table, p->control_dir);
    _exit(0);
}

static _Noreturn void serve(struct places *p)
{
    (void)snprintf(p->control_dir, sizeof(p->control_dir), "/tmp/hermes-ssh-XXXXXX");
    if (!mkdtemp(p->control_dir)) {
        log_event(LOG_ERROR, "no directory for connections of ssh", "reason", strerror(errno),
            (char *)NULL);
        _exit(1);
    }
    (void)signal(SIGTERM, SIG_DFL);
    start_tidy(p);
    for (;;) {
        struct pollfd ready[] = {{p->socket, POLLIN, 0}, {p->starter_fd, 0, 0}};
        (void)poll(ready, 2, REAP_MS);
        reap(p);
        /* without the starter nothing works on `local`: all of hermes-reach starts again */
        if (ready[1].revents || (ready[0].revents && !take_request(p)))
            break;
    }
    close_connections(p);
    _exit(0);
}

int places_start(struct reach *reach)
{
    const struct place_table *table = &reach->table.places;
    cleanup_close int table_fd = take_fd(&reach->table_fd);
    int pair[2];
    reach->places_fd = -1;
    if (!table->count)
        return 0;
    size_t size = sizeof(reach->table) + table->shell_len;
    const char *all = mmap(NULL, size, PROT_READ, MAP_PRIVATE, table_fd, 0);
    if (all == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        static struct places p;
        p = (struct places){.table = table,
            .shell = all + sizeof(reach->table),
            .socket = pair[1],
            .starter_fd = reach->starter_fd};
        /* The keys of the reviewer are the other half's. */
        explicit_bzero(reach->table.rows, sizeof(reach->table.rows));
        (void)close(REACH_FD);
        (void)close(reach->calls_fd);
        (void)close(pair[0]);
        if (confine_places(has_apptainer(table)) < 0)
            _exit(1);
        serve(&p);
    }
    (void)munmap((void *)all, size);
    (void)close(pair[1]);
    close_fd(&reach->starter_fd);
    reach->places_fd = pair[0];
    reach->places_pid = pid;
    return 0;
}

void places_pass(const struct reach *reach, const struct reach_call *call, const int *fds)
{
    (void)fdpass_send_now(reach->places_fd, call, sizeof(*call), fds, PLACE_FDS);
    for (int i = 0; i < PLACE_FDS; i++)
        (void)close(fds[i]);
}

void places_stop(struct reach *reach)
{
    if (reach->places_fd < 0)
        return;
    close_fd(&reach->places_fd);
}
