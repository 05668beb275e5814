/* SPDX-License-Identifier: Apache-2.0 */

#include "places/slots.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>

struct slot *slots_find(struct slots *slots, const char *owner)
{
    struct slot *found = NULL;
    unsigned held = 0;
    for (size_t i = 0; i < SLOTS_MAX; i++) {
        struct slot *slot = &slots->items[i];
        found = slot->pid ? found : slot;
        held += slot->pid && owner[0] && str_eq(slot->owner, owner);
    }
    return held < SLOTS_MAX - slots->count ? found : NULL;
}

void slots_take(
    struct slots *slots, struct slot *slot, pid_t pid, const char *owner, int server_fd)
{
    slot->server_fd = server_fd;
    slot->pid = pid;
    (void)snprintf(slot->owner, sizeof(slot->owner), "%s", owner);
    slots->count++;
}

void slots_leave(struct slots *slots, pid_t pid)
{
    for (size_t i = 0; i < SLOTS_MAX; i++) {
        if (slots->items[i].pid != pid)
            continue;
        close_fd(&slots->items[i].server_fd);
        slots->items[i] = (struct slot){0};
        slots->count--;
    }
}

void slots_end_orphans(struct slots *slots)
{
    struct pollfd fds[SLOTS_MAX];
    for (size_t i = 0; i < SLOTS_MAX; i++)
        fds[i] =
            (struct pollfd){slots->items[i].pid ? slots->items[i].server_fd : -1, POLLIN, 0};
    if (!slots->count || poll(fds, SLOTS_MAX, 0) <= 0)
        return;
    for (size_t i = 0; i < SLOTS_MAX; i++) {
        if (!fds[i].revents)
            continue;
        (void)kill(slots->items[i].pid, SIGTERM);
        close_fd(&slots->items[i].server_fd);
    }
}
