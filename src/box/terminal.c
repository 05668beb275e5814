/* SPDX-License-Identifier: Apache-2.0 */

/* See proto/terminal.h. The watcher keeps box init's id, so that no process in the box can
 * signal it, and no capability but the one to kill the shell. It reads nothing.
 *
 * The filter forbids TIOCSCTTY. But a session leader that opens a terminal which controls no
 * session yet gets it as its controlling terminal anyway. */

#include "box/inside.h"

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/sys.h"
#include "proto/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

/* HANGUP_MS: time for the shell to end after the hangup. A shell that is killed earlier has not
 * passed the hangup on to its jobs, and they would stay in the box; on a busy machine a second
 * was too short. EXIT_FAILED: the status that shells use for a command that was not found. */
enum { HANGUP_MS = 5000, EXIT_FAILED = 127 };

static void say(int fd, uint32_t kind, int32_t value)
{
    const struct terminal_word word = {kind, value};
    (void)send(fd, &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void terminal_refuse(int fd, int error)
{
    say(fd, TERMINAL_FAILED, error);
}

/* The parent may be a zygote, and interpreters ignore some signals. */
static void reset_signals(void)
{
    sigset_t none;
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Opens a terminal, sends its master end to the server, and returns the slave end in
 * *ret_fd. */
static int open_terminal(int fd, int *ret_fd)
{
    const struct terminal_word word = {.kind = TERMINAL_MASTER};
    const int locked = 0;
    char go;
    struct termios modes;
    cleanup_close int master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || ioctl(master, TIOCSPTLCK, &locked) < 0)
        return -errno;
    int r = fdpass_send(fd, &word, sizeof(word), &master, 1);
    if (r < 0)
        return r;
    if (recv(fd, &go, 1, 0) != 1 || go != TERMINAL_GO)
        _exit(EXIT_FAILED); /* the server has closed the socket */
    cleanup_close int slave = ioctl(master, TIOCGPTPEER, O_RDWR);
    if (slave < 0 || tcgetattr(slave, &modes) < 0)
        return -errno;
    modes.c_iflag |= IUTF8;
    if (tcsetattr(slave, TCSANOW, &modes) < 0)
        return -errno;
    *ret_fd = take_fd(&slave);
    return 0;
}

static int connect_terminal(int fd)
{
    for (int i = 0; i < 3; i++) {
        if (dup2(fd, i) < 0)
            return -errno;
    }
    return sys_close_range(3, ~0u, CLOSE_AT_EXEC);
}

/* The process that becomes the shell. It is confined like the program before it reads an
 * untrusted byte. */
static int become_shell(const struct inside *in, const struct terminal_order *order,
    int (*prepare)(const struct inside *in))
{
    struct payload_words words;
    int slave = -1;
    int r = 0;
    for (unsigned i = 0; i < order->join_count; i++) {
        if ((r = sys_cgroup_join(order->joins[i])) < 0)
            return r;
    }
    reset_signals();
    if (prepare && (r = prepare(in)) < 0)
        return r;
    if ((r = drop_to_payload(in)) < 0 || (r = payload_limit_files(in)) < 0)
        return r;
    if (setsid() < 0 || chdir("/box") < 0)
        return -errno;
    if ((r = open_terminal(order->fd, &slave)) < 0 || (r = payload_fence(in)) < 0 ||
        (r = payload_read_words(order->package_fd, &words)) < 0 ||
        (r = connect_terminal(slave)) < 0)
        return r;
    (void)execve(words.argv[0], words.argv, words.env);
    return -errno;
}

/* Waits for the end of the shell, or until the server closes the socket. Closing the master end
 * hangs up, which ends most shells; a shell that is still alive after HANGUP_MS is killed. */
static int watch(int fd, pid_t pid)
{
    int status = 0;
    cleanup_close int pidfd = sys_pidfd_open(pid);
    struct pollfd ready[] = {{.fd = pidfd, .events = POLLIN}, {.fd = fd, .events = 0}};
    int wait_ms = -1;
    while (pidfd >= 0) {
        int n = poll(ready, 2, wait_ms);
        if (n < 0 && errno != EINTR)
            break;
        if (ready[0].revents)
            break;
        if (n == 0) {
            (void)kill(pid, SIGKILL);
            wait_ms = -1;
        } else if (ready[1].revents) {
            ready[1].fd = -1;
            wait_ms = HANGUP_MS;
        }
    }
    if (pidfd < 0)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

void terminal_run(const struct inside *in, const struct terminal_order *order,
    int (*prepare)(const struct inside *in))
{
    int keep[2 + CGROUP_MAX_TREES] = {order->fd, order->package_fd};
    memcpy(keep + 2, order->joins, sizeof(order->joins[0]) * order->join_count);
    if (inside_close_others(keep, 2 + order->join_count) < 0)
        _exit(EXIT_FAILED);
    int pid = sys_fork();
    if (pid == 0) {
        terminal_refuse(order->fd, become_shell(in, order, prepare));
        _exit(EXIT_FAILED);
    }
    if (pid < 0 || drop_watcher() < 0) {
        terminal_refuse(order->fd, pid < 0 ? -EUSERS : -EPERM);
        _exit(EXIT_FAILED);
    }
    (void)close(order->package_fd);
    for (unsigned i = 0; i < order->join_count; i++)
        (void)close(order->joins[i]);
    int status = watch(order->fd, pid);
    say(order->fd, TERMINAL_ENDED, status);
    _exit(0);
}
