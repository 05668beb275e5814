/* SPDX-License-Identifier: Apache-2.0 */

/* Events of boxes (from box init over the init link, from the kernel by pidfd and eventfd) and
 * commands from the holders of their sockets. A holder may be a server that was taken over: a
 * command that makes no sense ends the box. Nothing here waits for a payload or a client; the
 * only waits are for own children that were just killed (fork_helped(), fork_reap_helpers()).
 */

#include "spawn/box_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/os/sys.h"
#include "box/inside.h"
#include "spawn/copy.h"
#include "spawn/request.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* BASE_MEMORY_MAX: most memory in bytes that counts as the box's own, see base_memory().
 * OOM_LOOK_MS: how long to look for a kill after an event of a v1 memory group. */
enum { BASE_MEMORY_MAX = 2 << 20, OOM_LOOK_MS = 5000 };

/* The memory that the box holds before its program does anything. For a ready box it was read
 * at the hand-over. For others it is read a moment after exec, so it is capped: a late look
 * must not hide memory of the program. */
static uint64_t base_memory(const struct spawner *s, const struct box *box)
{
    if (box->base_memory)
        return box->base_memory;
    bool has_zygote = box->kind->make == box_make_by_zygote;
    uint64_t most = has_zygote ? s->zygotes[box->maker].base_memory : 0;
    uint64_t now = cgroup_leaf_memory(&s->cgroups, &box->leaf);
    if (most < BASE_MEMORY_MAX)
        most = BASE_MEMORY_MAX;
    return now < most ? now : most;
}

static void on_start(struct spawner *s, struct box *box, const struct link_record *record)
{
    box->base_memory = base_memory(s, box);
    if (!box->base_cpu_ns) /* else a hand-over or an earlier start has set it */
        box->base_cpu_ns = record->cpu_ns;
    box->start_ns = record->ns;
    box_enter(s, box, STATE_RUNNING);
    if (box->is_aside)
        (void)fork_move_init(s, box, true);
    fork_helped(s, box);
    box_tell(box->socket, &(struct spawn_event){.kind = EVENT_STARTED,
                              .flags = box->kind->ahead ? STARTED_WARM : 0,
                              .cgroup = s->cgroups.mode,
                              .start_ns = box->start_ns,
                              .setup_ns = box->start_ns - box->request_ns});
}

/* The program of a session has ended. If the memory limit killed it, the whole box ends. That
 * is checked here because this record may come before the cgroup's event. */
static void on_rest(struct spawner *s, struct box *box, const struct link_record *record)
{
    struct cgroup_usage usage;
    cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
    bool is_full = box_hit_memory(box, &usage);
    box_enter(s, box, STATE_RESTING);
    shares_set_idle(s, box);
    if (box->is_aside)
        (void)cgroup_leaf_kill(&s->cgroups, &box->leaf);
    if (box->forks && (box->killed || is_full)) {
        box_tell_end(s, box); /* box init goes on for the copies */
        return;
    }
    if (box->killed) /* box init is about to be killed; on_end() reports */
        return;
    if (is_full) {
        box_kill(s, box);
        return;
    }
    box_tell(box->socket, &(struct spawn_event){.kind = EVENT_EXITED,
                              .flags = usage.crowded ? ENDED_CROWDED : 0,
                              .wait_status = record->status});
}

/* Whether one thread is left beside box init: the one that hermes_warm_exit() leaves behind to
 * hold the program's memory. If it is another thread, it dies with box init just as soon. */
static bool is_only_memory(const struct spawner *s, const struct box *box)
{
    if (!box->kind->ahead)
        return false;
    uint64_t tasks = cgroup_leaf_tasks(&s->cgroups, &box->leaf);
    return tasks > 0 && tasks <= 2;
}

static void on_record(struct spawner *s, struct box *box, const struct link_record *record)
{
    switch (record->kind) {
    case LINK_START:
        on_start(s, box, record);
        break;
    case LINK_INTERRUPTED:
        box_tell(box->socket, &(struct spawn_event){.kind = EVENT_INTERRUPTED});
        break;
    case LINK_PARKING:
        box->base_memory = base_memory(s, box);
        /* low until the program is ready */
        cgroup_leaf_weigh(&s->cgroups, &box->leaf, WEIGHT_MAX / 4);
        break;
    case LINK_READY:
        box_enter(s, box, STATE_READY);
        shares_weigh(s, box); /* the weight was low until now, see LINK_PARKING */
        break;
    case LINK_REAPED:
        fork_reaped(s, box, record);
        break;
    case LINK_FAILED:
        box_note_failure(s, box, record->step, record->error);
        box->status = record->status;
        break;
    case LINK_EXIT:
        if (box->error)
            break;
        if (box->kind->is_session) {
            on_rest(s, box, record);
            break;
        }
        box_enter(s, box, STATE_ENDING);
        box->status = record->status;
        box->end_ns = record->ns;
        box->disk_full = record->disk_full;
        box->init_cpu_ns = record->cpu_ns;
        box->init_rss = record->rss_bytes;
        if (box->flags & BOX_COLLECT) {
            cgroup_leaf_usage(&s->cgroups, &box->leaf, &box->at_exit);
            box_tell(box->socket, &(struct spawn_event){.kind = EVENT_EXITED});
        } else if (record->is_empty || is_only_memory(s, box)) {
            /* Only box init is left, on its way out. Reporting now saves the millisecond that
             * the kernel takes to remove the namespaces. */
            box_tell_end(s, box);
        }
        break;
    default:
        break;
    }
}

void box_on_link(struct spawner *s, struct box *box)
{
    struct link_record record;
    ssize_t n;
    while ((n = recv(box->link, &record, sizeof(record), MSG_DONTWAIT)) == sizeof(record))
        on_record(s, box, &record);
    if (box->end_ns || box->error)
        (void)shutdown(box->link, SHUT_WR); /* box init of a warm box waits for this */
    /* Box init has nothing more to say but takes its time to die; a closed link would wake
     * epoll all that time. */
    if (n == 0 || (box->state >= STATE_TOLD && !box->kind->is_session))
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->link, NULL);
}

static void hear_fork(struct spawner *s, struct box *box)
{
    struct link_record record;
    while (!box->error && fork_hear(s, box, &record))
        on_record(s, box, &record);
}

void box_on_copy_link(struct spawner *s, struct box *box)
{
    hear_fork(s, box);
    if (box->error && !box->start_ns)
        box_fail(s, box, box->step, box->error);
}

static void tell_usage(struct spawner *s, struct box *box)
{
    struct cgroup_usage usage;
    struct spawn_event event = {.kind = EVENT_USAGE};
    cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
    event.flags = (usage.pids_max ? ENDED_PIDS : 0u) | (usage.crowded ? ENDED_CROWDED : 0u);
    event.peak_bytes = box_above(usage.peak_bytes, box->base_memory);
    box_fill_usage(s, box, &usage, &event);
    box_tell(box->socket, &event);
}

/* Gives a session that has no program another one. A copy that is still being made of the old
 * program ends first. */
static bool restart(struct spawner *s, struct box *box, const int *fds, unsigned fd_count)
{
    const struct link_order order = {.kind = ORDER_RESTART};
    if (box->state != STATE_RESTING || !request_restart_ok(fds, fd_count))
        return false;
    if (box->copy)
        box_fail(s, box->copy, STEP_COPY_STOP, -ECANCELED);
    box->request_ns = clock_ns();
    int r = box_give_pipes(s, box, fds + 1, fd_count - 1);
    /* The program is born in init's group, so init must be in the program's group.
     * on_start() moves init out again. */
    if (r == 0 && box->is_aside)
        r = fork_move_init(s, box, false);
    if (r == 0)
        r = fdpass_send(box->link, &order, sizeof(order), fds, fd_count);
    if (r == 0)
        box_enter(s, box, STATE_RUNNING);
    return r == 0;
}

/* Has a session's init start a helper, with at most two descriptors. Where init is in a group
 * of its own the helper enters the program's: what it uses counts there. Where init has too
 * many orders to follow already, the socket closes, which tells. */
static void order_helper(const struct spawner *s, const struct box *box,
    const struct link_order *order, const int *fds, unsigned fd_count)
{
    int send[2 + CGROUP_MAX_TREES];
    memcpy(send, fds, sizeof(fds[0]) * fd_count);
    int *joins = send + fd_count;
    int count =
        box->is_aside ? cgroup_leaf_open_joins(&s->cgroups, &box->leaf, true, joins) : 0;
    if (count >= 0)
        (void)fdpass_send(box->link, order, sizeof(*order), send, fd_count + (unsigned)count);
    for (int i = 0; i < count; i++)
        (void)close(joins[i]);
}

static bool start_files(
    const struct spawner *s, const struct box *box, const int *fds, unsigned fd_count)
{
    const struct link_order order = {
        .kind = ORDER_FILES, .room_bytes = cgroup_leaf_room(&s->cgroups, &box->leaf)};
    if (!request_files_ok(fds, fd_count))
        return false;
    order_helper(s, box, &order, fds, fd_count);
    return true;
}

static bool start_terminal(
    const struct spawner *s, const struct box *box, const int *fds, unsigned fd_count)
{
    const struct link_order order = {.kind = ORDER_TERMINAL};
    if (!request_terminal_ok(fds, fd_count))
        return false;
    if (box->state != STATE_RESTING) /* otherwise the closed socket shows it */
        order_helper(s, box, &order, fds, fd_count);
    return true;
}

/* A copy has no box init of its own to ask. COMMAND_STOP ends it. */
bool box_obey_copy(struct spawner *s, struct box *box, const struct spawn_command *command,
    const int *fds, unsigned fd_count)
{
    int r;
    switch (command->kind) {
    case COMMAND_INTERRUPT:
        if (fork_interrupt(box) < 0)
            return false;
        box_tell(box->socket, &(struct spawn_event){.kind = EVENT_INTERRUPTED});
        return true;
    case COMMAND_FILES:
        if (!request_files_ok(fds, fd_count))
            return false;
        if ((r = fork_serve(s, box, COPY_FILES, fds)) < 0) /* -EPIPE: it is ending */
            files_refuse(fds[0], r == -EUSERS ? r : -EPIPE);
        return true;
    case COMMAND_TERMINAL:
        if (!request_terminal_ok(fds, fd_count))
            return false;
        if ((r = fork_serve(s, box, COPY_TERMINAL, fds)) < 0)
            terminal_refuse(fds[0], r);
        return true;
    case COMMAND_PAUSE:
        return fork_pause(s, box, true) == 0;
    case COMMAND_RESUME:
        return fork_pause(s, box, false) == 0;
    default:
        return false;
    }
}

bool box_obey_session(struct spawner *s, struct box *box, const struct spawn_command *command,
    const int *fds, unsigned fd_count)
{
    switch (command->kind) {
    case COMMAND_INTERRUPT:
        return sys_pidfd_send_signal(box->pidfd, SIGINT) >= 0;
    case COMMAND_STOP:
        if (box->is_aside)
            return cgroup_leaf_kill(&s->cgroups, &box->leaf) >= 0;
        return sys_pidfd_send_signal(box->pidfd, SIGTERM) >= 0;
    case COMMAND_RESTART:
        return restart(s, box, fds, fd_count);
    case COMMAND_FILES:
        return start_files(s, box, fds, fd_count);
    case COMMAND_TERMINAL:
        return start_terminal(s, box, fds, fd_count);
    default:
        return false;
    }
}

/* False when the command makes no sense for this box. */
static bool obey(struct spawner *s, struct box *box, const struct spawn_command *command,
    int *fds, unsigned fd_count)
{
    if (command->kind == COMMAND_USAGE) {
        tell_usage(s, box);
        return true;
    }
    if (!box->kind->is_session || !box->start_ns)
        return false;
    if (command->kind == COMMAND_FORK)
        return fork_begin(s, box, command, fds, fd_count);
    if (command->kind == COMMAND_NETWORK && request_network_ok(fds, fd_count)) {
        egress_command(s, box, &fds[0]);
        return true;
    }
    if (command->kind == COMMAND_IMAGE && request_network_ok(fds, fd_count)) {
        image_join(s, box, command->root, fds[0]);
        return true;
    }
    return box->kind->obey(s, box, command, fds, fd_count);
}

static void on_command(struct spawner *s, struct box *box)
{
    struct spawn_command command = {0};
    int fds[BOX_MAX_FDS];
    unsigned fd_count;
    if (box->socket < 0) /* an event of the box that had this place before */
        return;
    ssize_t n =
        box_receive(s, box->socket, &command, sizeof(command), fds, BOX_MAX_FDS, &fd_count);
    if (n == -EAGAIN) /* also an old event */
        return;
    fork_reap_helpers(box, false);
    if (command.is_idle || command.kind == COMMAND_PAUSE)
        shares_set_idle(s, box);
    else /* a box handles every command at its owner's full weight */
        shares_set_busy(s, box);
    bool is_obeyed = n == sizeof(command) && obey(s, box, &command, fds, fd_count);
    for (unsigned i = 0; i < fd_count; i++)
        close_fd(&fds[i]);
    if (is_obeyed)
        return;
    /* A kill, the end of the socket, or nonsense: each ends the box. Once is enough. */
    box->killed = true;
    if (n <= 0)
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->socket, NULL);
    if (box->pidfd < 0) { /* a copy that is not known yet */
        box_fail(s, box, STEP_REQUEST, -ECANCELED);
        return;
    }
    box_kill(s, box);
    if (box->forks && box->state == STATE_RESTING)
        box_tell_end(s, box);
}

/* The process of a copy is dead. Its children are killed with its group. */
void box_on_copy_end(struct spawner *s, struct box *box)
{
    struct pollfd dead = {.fd = box->pidfd, .events = POLLIN};
    if (box->pidfd < 0 || poll(&dead, 1, 0) != 1 || fork_awaits_end(s, box))
        return;
    hear_fork(s, box);
    box_kill(s, box);
    box_tell_end(s, box);
    box_release(s, box);
}

/* Box init is dead, and with it the pid namespace: nothing of the box runs any more. */
void box_on_end(struct spawner *s, struct box *box)
{
    siginfo_t info = {0};
    int r = waitid(P_PIDFD, (id_t)box->pidfd, &info, WEXITED | WNOHANG);
    if (r < 0 ? errno != ECHILD : info.si_pid == 0)
        return; /* a stale event of the box that had this index before */
    box_on_link(s, box);
    if (box->state < STATE_TOLD)
        box_tell_end(s, box);
    if (!box->forks) {
        box_release(s, box);
        return;
    }
    /* the copies die with the pid namespace; their own events follow */
    box_enter(s, box, STATE_DESERTED);
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->pidfd, NULL);
    fork_desert(s, box);
}

/* Returns true when there is nothing more to look for. A box whose group was removed has no
 * limits any more, so it is killed, too. */
static bool look_for_kill(struct spawner *s, struct box *box)
{
    struct cgroup_usage usage;
    cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
    if (!box_hit_memory(box, &usage) && cgroup_leaf_exists(&s->cgroups, &box->leaf))
        return false;
    box->oom_kill = true;
    box->killed = box->killed || box->forks;
    box_kill(s, box);
    return true;
}

bool box_look_for_kills(struct spawner *s)
{
    bool more = false;
    if (!s->oom_ms)
        return false;
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (box->state && box->oom_event && !box->oom_kill)
            more = !look_for_kill(s, box) || more;
    }
    if (!more || clock_ms() > s->oom_ms)
        s->oom_ms = 0;
    return s->oom_ms > 0;
}

/* An event only means that it is worth a look (cgroup_leaf_watch_oom()). */
static void on_oom(struct spawner *s, struct box *box)
{
    uint64_t count;
    if (box->leaf.oom_fd < 0 || read(box->leaf.oom_fd, &count, sizeof(count)) < 0)
        return; /* a stale event of the box that had this index before */
    box->oom_event = true;
    s->oom_ms = clock_ms() + OOM_LOOK_MS;
}

void box_event(struct spawner *s, struct box *box, enum box_tag tag)
{
    switch (tag) {
    case TAG_LINK:
        box->kind->on_link(s, box);
        break;
    case TAG_SOCKET:
        on_command(s, box);
        break;
    case TAG_OOM:
        on_oom(s, box);
        break;
    case TAG_PIDFD:
        box->kind->on_end(s, box);
        break;
    default:
        break;
    }
}
