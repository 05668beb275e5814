/* SPDX-License-Identifier: Apache-2.0 */

/* See orphans.h. */

#include "spawn/orphans.h"

#include "base/clock.h"
#include "spawn/copy.h"

#include <sys/wait.h>

/* ORPHANS_MS: how long a child takes to end after SIGKILL, or a box after its link is gone, and
 * much more. LOOK_MS: time between two looks, because each takes a system call. */
enum { ORPHANS_MS = 5000, LOOK_MS = 20 };

/* Until when to look for them, and when next, clock_ms(); 0: not now. */
static uint64_t until_ms, next_ms;

static bool is_child(int pidfd, pid_t pid)
{
    siginfo_t info = {0};
    return pidfd >= 0 &&
           waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid;
}

/* Whether other code will wait for this dead child. */
static bool is_awaited(const struct spawner *s, pid_t pid)
{
    bool found =
        pid == s->network.helper || pid == s->egress.helper_pid || pid == s->helper.pid;
    for (uint32_t i = 0; !found && i < s->zygote_count; i++)
        found =
            is_child(s->zygotes[i].now.pidfd, pid) || is_child(s->zygotes[i].next.pidfd, pid);
    for (unsigned i = 0; !found && i < s->box_end; i++) {
        const struct box *box = &s->boxes[i];
        found = box->state && (box->helper == pid || is_child(box->pidfd, pid));
        for (unsigned k = 0; !found && k < FORK_MAX_SERVERS; k++)
            found = box->servers[k] == pid;
    }
    return found;
}

void orphans_expect(void)
{
    until_ms = clock_ms() + ORPHANS_MS;
}

bool orphans_reap(struct spawner *s)
{
    siginfo_t info = {0};
    uint64_t now_ms = until_ms ? clock_ms() : 0;
    if (now_ms < next_ms || !until_ms)
        return until_ms;
    next_ms = now_ms + LOOK_MS;
    /* These are reaped first, because waitid() would return them again and hide the orphan. */
    (void)setup_reap(&s->helper, false);
    for (unsigned i = 0; i < s->box_end; i++)
        fork_reap_helpers(&s->boxes[i], false);
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 &&
           !is_awaited(s, info.si_pid)) {
        (void)waitpid(info.si_pid, NULL, 0);
        info.si_pid = 0;
    }
    if (now_ms >= until_ms)
        until_ms = 0;
    return until_ms;
}
