/* SPDX-License-Identifier: Apache-2.0 */

/* A terminal of a far session: a process of its own, which has the terminal and an interactive
 * shell, and speaks with the other end as proto/terminal_link.h says. */

#include "bash/far.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/sys.h"
#include "proto/terminal_link.h"

/* HANGUP_MS: as in box/terminal.c. EXIT_FAILED: the status of a command that cannot run. */
enum { HANGUP_MS = 5000, EXIT_FAILED = 127, TALK_FD = 3 };

static const char REFUSAL[] = "this place has no terminal or no process to spare\r\n";

struct shell {
    struct terminal_link link;
    int signals;
    pid_t pid; /* 0 before it starts */
    int status;
    bool has_ended;
};

static int open_pair(int *ret_slave)
{
    const int locked = 0;
    unsigned number;
    char path[32];
    cleanup_close int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0 || ioctl(master, TIOCSPTLCK, &locked) < 0 ||
        ioctl(master, TIOCGPTN, &number) < 0)
        return -errno;
    (void)snprintf(path, sizeof(path), "/dev/pts/%u", number);
    if ((*ret_slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0)
        return -errno;
    return take_fd(&master);
}

static _Noreturn void be_shell(const struct far *far, int slave)
{
    char *argv[] = {(char *)"bash", (char *)"-i", NULL};
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL);
    if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0 || dup2(slave, 0) < 0 ||
        dup2(slave, 1) < 0 || dup2(slave, 2) < 0 ||
        sys_close_range(TALK_FD, FAR_LAST_FD, 0) < 0)
        _exit(EXIT_FAILED);
    if (far->root[0] && chdir(far->root) < 0)
        (void)dprintf(2, "cannot enter the directory %s: %s\r\n", far->root, strerror(errno));
    (void)setenv("TERM", "xterm-256color", 1);
    far_set_variables(far);
    (void)execv(far->bash, argv);
    (void)dprintf(2, "%s cannot be executed: %s\r\n", far->bash, strerror(errno));
    _exit(EXIT_FAILED);
}

static void set_size(const struct shell *s, uint32_t size)
{
    const struct winsize now = {
        .ws_row = (unsigned short)(size >> 16), .ws_col = (unsigned short)size};
    (void)ioctl(s->link.bytes_fd, TIOCSWINSZ, &now);
}

/* A failure is shown as output: the user of the place can fix its cause there. */
static void start(struct shell *s, const struct far *far)
{
    cleanup_close int slave = -1;
    int master = open_pair(&slave);
    s->pid = master < 0 ? master : fork();
    if (s->pid == 0)
        be_shell(far, slave);
    s->link.bytes_fd = master < 0 ? -1 : master;
    if (s->pid < 0) {
        terminal_link_send(&s->link, REFUSAL, strlen(REFUSAL));
        s->has_ended = true;
        s->status = EXIT_FAILED << 8;
    }
}

static int take_words(struct shell *s, const struct far *far)
{
    char kind;
    uint32_t value;
    int r;
    while ((r = terminal_link_next(&s->link, &kind, &value)) == 1) {
        if (kind == TERMINAL_SIZED && s->pid == 0)
            start(s, far);
        if (kind == TERMINAL_SIZED)
            set_size(s, value);
    }
    return r;
}

static void reap(struct shell *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        ;
    if (s->pid > 0 && !s->has_ended && waitpid(s->pid, &s->status, WNOHANG) == s->pid)
        s->has_ended = true;
}

/* The other end is gone: hangs up the terminal. A shell that survives this is killed. */
static _Noreturn void hang_up(struct shell *s)
{
    uint64_t until_ms = clock_ms() + HANGUP_MS;
    close_fd(&s->link.bytes_fd);
    while (s->pid > 0 && !s->has_ended && clock_ms() < until_ms) {
        struct pollfd ready = {s->signals, POLLIN, 0};
        (void)poll(&ready, 1, HANGUP_MS / 10);
        reap(s);
    }
    if (s->pid > 0 && !s->has_ended)
        (void)kill(-s->pid, SIGKILL);
    _exit(0);
}

static bool has_output(const struct shell *s)
{
    struct pollfd ready = {s->link.bytes_fd, POLLIN, 0};
    return s->link.bytes_fd >= 0 && poll(&ready, 1, 0) > 0 && ready.revents & POLLIN;
}

/* After the shell's end: its last output goes first. Jobs may still have the terminal. */
static void tell_end(struct shell *s)
{
    if (has_output(s) || s->link.out.len)
        return;
    terminal_link_say(&s->link, TERMINAL_STATUS, (uint32_t)s->status);
    (void)fcntl(s->link.talk_fd, F_SETFL, 0);
    terminal_link_write(&s->link);
    hang_up(s);
}

static void serve(struct shell *s, const struct far *far)
{
    short bytes = terminal_link_bytes_events(&s->link);
    struct pollfd fds[] = {
        {s->link.talk_fd, terminal_link_talk_events(&s->link), 0},
        {bytes ? s->link.bytes_fd : -1, bytes, 0},
        {s->signals, POLLIN, 0},
    };
    if (poll(fds, 3, -1) < 0)
        return;
    if (fds[0].revents & (POLLIN | POLLHUP | POLLERR) &&
        (terminal_link_read_talk(&s->link) < 0 || take_words(s, far) < 0))
        hang_up(s);
    /* No process has the terminal open: it hangs up. */
    if (fds[1].revents & (POLLIN | POLLHUP | POLLERR) &&
        terminal_link_read_bytes(&s->link) < 0 && !s->has_ended)
        close_fd(&s->link.bytes_fd);
    reap(s);
    terminal_link_write(&s->link);
    if (s->has_ended)
        tell_end(s);
}

void far_terminal(const struct far *far, int fd)
{
    static struct shell s;
    sigset_t set;
    (void)dup2(fd, TALK_FD);
    (void)sys_close_range(TALK_FD + 1, FAR_LAST_FD, 0);
    (void)fcntl(TALK_FD, F_SETFD, FD_CLOEXEC);
    (void)fcntl(TALK_FD, F_SETFL, O_NONBLOCK);
    (void)setpgid(0, 0);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    terminal_link_init(&s.link, TALK_FD, -1);
    if ((s.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        _exit(EXIT_FAILED);
    for (;;)
        serve(&s, far);
}
