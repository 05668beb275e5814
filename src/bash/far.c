/* SPDX-License-Identifier: Apache-2.0 */

/* See far.h. */

#include "bash/far.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/os/sys.h"
#include "base/str.h"
#include "bash/kernel.h"
#include "bash/proctree.h"
#include "proto/far.h"

enum {
    CHANNEL_FD = 3,
    PIECE = 64 << 10,      /* bytes of output in one frame */
    WAITING_MAX = 1 << 20, /* bytes for the kernel or a helper, before the stream waits */
    STOP_MS = 3000,        /* for the kernel to end its processes */
    NAP_MS = 5,
    EXIT_PROTOCOL = 70,
    EXIT_ALONE = 73, /* nobody connected within the grace time */
};

static void nap(void)
{
    (void)poll(NULL, 0, NAP_MS);
}

/* Ends the kernel and every process below this one. */
static _Noreturn void end(struct far *far, int status)
{
    uint64_t until_ms = clock_ms() + STOP_MS;
    close_fd(&far->channel); /* the kernel then kills the processes that it started */
    while (far->kernel > 0 && waitpid(far->kernel, NULL, WNOHANG) == 0 && clock_ms() < until_ms)
        nap();
    tree_kill_all(STOP_MS);
    if (far->socket_path)
        (void)unlink(far->socket_path);
    exit(status);
}

static void drop_kernel(struct far *far)
{
    close_fd(&far->channel);
    close_fd(&far->out);
    close_fd(&far->err);
    buf_clear(&far->from_kernel);
    buf_clear(&far->to_kernel);
    far->kernel = 0;
    far->kill_at_ms = 0;
    far->holds_done = false;
}

void far_set_variables(const struct far *far)
{
    const char *end = far->variables.data + far->variables.len;
    for (const char *at = far->variables.data; at < end; at += strlen(at) + 1)
        (void)putenv((char *)at);
}

static _Noreturn void be_kernel(struct far *far, int fds[3], const char *dir)
{
    sigset_t empty;
    (void)setpgid(0, 0);
    (void)sigemptyset(&empty);
    (void)sigprocmask(SIG_SETMASK, &empty, NULL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++) /* out of the way of 0 to 3 */
        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, CHANNEL_FD + 1);
    if (dup2(null, 0) < 0 || dup2(fds[0], 1) < 0 || dup2(fds[1], 2) < 0 ||
        dup2(fds[2], CHANNEL_FD) < 0 || sys_close_range(CHANNEL_FD + 1, FAR_LAST_FD, 0) < 0)
        _exit(EXIT_PROTOCOL);
    if (dir[0] && chdir(dir) < 0) {
        (void)dprintf(2, "cannot enter the directory %s: %s\n", dir, strerror(errno));
        _exit(EXIT_PROTOCOL);
    }
    far_set_variables(far);
    kernel_run(far->bash, far->is_fresh);
}

static int make_ends(int ours[3], int theirs[3])
{
    int out[2], err[2], channel[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(err, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0)
        return -errno;
    ours[0] = out[0];
    ours[1] = err[0];
    ours[2] = channel[0];
    theirs[0] = out[1];
    theirs[1] = err[1];
    theirs[2] = channel[1];
    for (int i = 0; i < 3; i++)
        (void)fcntl(ours[i], F_SETFL, O_NONBLOCK);
    return 0;
}

static void start_kernel(struct far *far, const struct frame *f)
{
    int ours[3] = {-1, -1, -1}, theirs[3] = {-1, -1, -1};
    const char *end_of_words = f->payload + f->len;
    if (far->kernel > 0 || f->len == 0 || end_of_words[-1] != '\0' ||
        strlen(f->payload) >= sizeof(far->root))
        end(far, EXIT_PROTOCOL);
    /* The directory comes first, then the variables. */
    const char *variables = f->payload + strlen(f->payload) + 1;
    buf_clear(&far->variables);
    if (buf_append(&far->variables, variables, (size_t)(end_of_words - variables)) < 0)
        end(far, EXIT_PROTOCOL);
    if (f->payload[0])
        (void)snprintf(far->root, sizeof(far->root), "%s", f->payload);
    else if (!getcwd(far->root, sizeof(far->root)))
        (void)snprintf(far->root, sizeof(far->root), "/");
    if (make_ends(ours, theirs) < 0)
        end(far, EXIT_PROTOCOL);
    far->kill_at_ms = 0; /* of a `stop` that came after the end of the interpreter */
    far->kernel = fork();
    if (far->kernel == 0)
        be_kernel(far, theirs, f->payload);
    for (int i = 0; i < 3; i++)
        (void)close(theirs[i]);
    if (far->kernel < 0)
        end(far, EXIT_PROTOCOL);
    (void)setpgid(far->kernel, far->kernel);
    far->out = ours[0];
    far->err = ours[1];
    far->channel = ours[2];
}

/* Reads at most `max` bytes of a pipe into one frame. */
static ssize_t take_output(struct far *far, int *fd, const char *kind, size_t max)
{
    static char piece[PIECE];
    ssize_t n = read(*fd, piece, max < PIECE ? max : PIECE);
    if (n > 0)
        link_queue(&far->link, kind, piece, (size_t)n);
    if (n == 0)
        close_fd(fd);
    return n;
}

static size_t waiting_in(int fd)
{
    int count = 0;
    return fd >= 0 && ioctl(fd, FIONREAD, &count) == 0 && count > 0 ? (size_t)count : 0;
}

static void pay(struct far *far, int *fd, const char *kind, size_t *due)
{
    while (*due > 0 && *fd >= 0 && !link_is_full(&far->link)) {
        ssize_t n = take_output(far, fd, kind, *due);
        *due = n > 0 ? *due - (size_t)n : 0;
    }
    if (*fd < 0)
        *due = 0;
}

/* Passes the kernel's frames on. `done` comes after all output of the code. Later output of
 * background processes may come after it. */
static void pass_frames(struct far *far)
{
    struct frame f;
    int r = 0;
    while (!link_is_full(&far->link) && (r = frame_parse(&far->from_kernel, &f)) == 1) {
        if (str_eq(f.kind, "done") && !far->holds_done) {
            far->holds_done = true;
            far->out_due = waiting_in(far->out);
            far->err_due = waiting_in(far->err);
        }
        if (far->holds_done) {
            pay(far, &far->out, "out", &far->out_due);
            pay(far, &far->err, "err", &far->err_due);
            if (far->out_due || far->err_due)
                return;
            far->holds_done = false;
        }
        link_queue_raw(&far->link, far->from_kernel.data, f.whole);
        frame_drop(&far->from_kernel, &f);
    }
    if (r < 0) { /* something else than the kernel wrote to its channel */
        close_fd(&far->channel);
        far->kill_at_ms = clock_ms();
    }
}

static void on_kernel_end(struct far *far, int status)
{
    char text[16];
    tree_kill_all(STOP_MS);
    while (far->out >= 0 && take_output(far, &far->out, "out", PIECE) > 0 &&
           !link_is_full(&far->link))
        ;
    while (far->err >= 0 && take_output(far, &far->err, "err", PIECE) > 0 &&
           !link_is_full(&far->link))
        ;
    int n = snprintf(text, sizeof(text), "%d", status);
    link_queue(&far->link, "exit", text, (size_t)n);
    drop_kernel(far);
}

static void on_signals(struct far *far)
{
    struct signalfd_siginfo info;
    int status, kernel_status = 0;
    bool is_over = false;
    pid_t pid;
    while (read(far->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        ;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == far->kernel) {
            is_over = true;
            kernel_status = status;
        }
    }
    if (is_over)
        on_kernel_end(far, kernel_status);
}

static bool frame_number(const struct frame *f, uint64_t *ret)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%.*s", (int)(f->len < 20 ? f->len : 20), f->payload);
    return str_parse_u64(text, ret) == 0;
}

static void write_channel(struct far *far)
{
    if (far->channel < 0 || !far->to_kernel.len)
        return;
    ssize_t n = send(
        far->channel, far->to_kernel.data, far->to_kernel.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
        far->to_kernel.len -= (size_t)n;
        memmove(far->to_kernel.data, far->to_kernel.data + n, far->to_kernel.len);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        buf_clear(&far->to_kernel); /* the kernel has ended */
    }
}

/* Handles frames for the far shell itself; false for frames of the interpreter. */
static bool on_own_frame(struct far *far, const struct frame *f)
{
    uint64_t number = 0;
    if (str_eq(f->kind, "start") || str_eq(f->kind, "start_fresh")) {
        far->is_fresh = str_eq(f->kind, "start_fresh");
        start_kernel(far, f);
    } else if (str_eq(f->kind, "signal")) {
        if (!frame_number(f, &number) || number == 0 || number >= NSIG)
            end(far, EXIT_PROTOCOL);
        write_channel(far); /* the signal may be for a command that came with it */
        if (far->kernel > 0)
            (void)kill(-far->kernel, (int)number);
    } else if (str_eq(f->kind, "stop")) {
        close_fd(&far->channel);
        far->kill_at_ms = clock_ms() + STOP_MS;
    } else if (str_eq(f->kind, "ping")) {
        link_queue(&far->link, "ping", f->payload, f->len);
    } else if (str_eq(f->kind, "ack")) {
        if (!frame_number(f, &number) || link_confirm(&far->link, number) < 0)
            end(far, EXIT_PROTOCOL);
    } else if (str_eq(f->kind, "end")) {
        end(far, 0);
    } else {
        return far_files_on_frame(far, f);
    }
    return true;
}

static bool is_congested(const struct far *far)
{
    return far->to_kernel.len > WAITING_MAX || far_files_are_full(far);
}

static void take_frames(struct far *far)
{
    struct frame f;
    int r = 0;
    while (!is_congested(far) && (r = frame_parse(&far->link.in, &f)) == 1) {
        if (!on_own_frame(far, &f) && far->channel >= 0 &&
            buf_append(&far->to_kernel, far->link.in.data, f.whole) < 0)
            end(far, EXIT_PROTOCOL);
        frame_drop(&far->link.in, &f);
    }
    if (r < 0)
        end(far, EXIT_PROTOCOL);
}

static void read_channel(struct far *far)
{
    ssize_t n = buf_read_fd(&far->from_kernel, far->channel, PIECE);
    if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR))
        close_fd(&far->channel);
}

/* Ends what must end now. Returns how long poll() may wait. */
static int check_deadlines(struct far *far)
{
    uint64_t now = clock_ms(), next = UINT64_MAX;
    /* No byte comes over a lost network. The time does not run while we do not read. */
    if (far->link.listen_fd >= 0 && link_is_connected(&far->link)) {
        if (is_congested(far))
            far->link.alone_ms = now;
        next = far->link.alone_ms +
               (uint64_t)1000 * far_silent_s((uint32_t)(far->grace_ms / 1000));
        if (now >= next)
            link_disconnect(&far->link);
    }
    bool is_alone = !link_is_connected(&far->link);
    if (is_alone && (far->link.listen_fd < 0 || now >= far->link.alone_ms + far->grace_ms))
        end(far, far->link.listen_fd < 0 ? 0 : EXIT_ALONE);
    if (is_alone)
        next = far->link.alone_ms + far->grace_ms;
    if (far->kill_at_ms && now >= far->kill_at_ms) {
        if (far->kernel > 0)
            (void)kill(far->kernel, SIGKILL);
        far->kill_at_ms = 0;
    }
    if (far->kill_at_ms && far->kill_at_ms < next)
        next = far->kill_at_ms;
    return next == UINT64_MAX ? -1 : next - now > 60000 ? 60000 : (int)(next - now);
}

enum { W_SIGNALS, W_IN, W_OUT, W_LISTEN, W_CHANNEL, W_PIPE_OUT, W_PIPE_ERR, W_HELPERS };

static void poll_once(struct far *far)
{
    struct link *l = &far->link;
    int wait_ms = check_deadlines(far);
    bool is_full = link_is_full(l);
    bool reads = !is_congested(far);
    short channel = (short)((is_full ? 0 : POLLIN) | (far->to_kernel.len ? POLLOUT : 0));
    int pipes = is_full || far->holds_done ? 0 : 1;
    struct pollfd fds[W_HELPERS + FAR_HELPERS] = {
        [W_SIGNALS] = {far->signals, POLLIN, 0},
        [W_IN] = {reads ? l->in_fd : -1, POLLIN, 0},
        [W_OUT] = {link_has_more(l) ? l->out_fd : -1, POLLOUT, 0},
        [W_LISTEN] = {l->listen_fd, POLLIN, 0},
        [W_CHANNEL] = {channel ? far->channel : -1, channel, 0},
        [W_PIPE_OUT] = {pipes ? far->out : -1, POLLIN, 0},
        [W_PIPE_ERR] = {pipes ? far->err : -1, POLLIN, 0},
    };
    for (int i = 0; i < FAR_HELPERS; i++) {
        struct far_helper *h = &far->helpers[i];
        short events = (short)((is_full ? 0 : POLLIN) | (h->to.len ? POLLOUT : 0));
        fds[W_HELPERS + i] = (struct pollfd){h->id && events ? h->fd : -1, events, 0};
    }
    if (poll(fds, W_HELPERS + FAR_HELPERS, wait_ms) < 0)
        return;
    if (fds[W_LISTEN].revents)
        link_accept(l);
    else if (fds[W_IN].revents)
        link_read(l);
    if (fds[W_PIPE_OUT].revents)
        (void)take_output(far, &far->out, "out", PIECE);
    if (fds[W_PIPE_ERR].revents)
        (void)take_output(far, &far->err, "err", PIECE);
    if (fds[W_CHANNEL].revents & (POLLIN | POLLHUP | POLLERR))
        read_channel(far);
    for (int i = 0; i < FAR_HELPERS; i++) {
        if (fds[W_HELPERS + i].revents & (POLLIN | POLLHUP | POLLERR))
            far_files_read(far, &far->helpers[i]);
    }
    if (fds[W_SIGNALS].revents)
        on_signals(far);
}

void far_run(struct far *far)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* gVisor has none */
    far->channel = far->out = far->err = -1;
    buf_init(&far->variables, FRAME_MAX);
    buf_init(&far->from_kernel, (size_t)FRAME_MAX + PIECE + 64);
    buf_init(&far->to_kernel, (size_t)2 * FRAME_MAX + WAITING_MAX);
    if ((far->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        end(far, EXIT_PROTOCOL);
    for (;;) {
        poll_once(far);
        take_frames(far);
        pass_frames(far);
        write_channel(far);
        for (int i = 0; i < FAR_HELPERS; i++)
            far_files_write(far, &far->helpers[i]);
        link_write(&far->link);
    }
}
