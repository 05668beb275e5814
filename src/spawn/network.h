/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Network namespaces. The kernel takes longer to make and to remove one than all the rest of a
 * box's namespaces together. So somebody makes them while the spawner does something else:
 * `hermes run` itself, over a socket that it hands over before the seal, or for a server a
 * helper process of the spawner. And the helper looks at those whose box is gone: one that
 * cannot be told from a new one, since nobody ever sent a byte in it, serves again
 * (network_fresh.h); the others go.
 *
 * Nobody in a box can change its namespace: it belongs to the user namespace of the spawner, or
 * of the zygote that made the box. Only from there it can be entered, so each has an owner.
 *
 * Only root can come back from such a namespace into the host's. Without root, and whenever
 * none is ready, clone3() makes the box's and box init raises its loopback. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { NETWORK_POOL_MAX = 32, NETWORK_OURS = 0 };

/* The oldest first. */
struct network_list {
    struct {
        int fd;
        uint32_t owner; /* NETWORK_OURS, or the zygote's serial number */
    } at[NETWORK_POOL_MAX];
    unsigned count;
};

struct network {
    int home_fd;    /* the spawner's own namespace */
    int socket;     /* where they come from; -1 when from nowhere */
    pid_t helper;   /* who sends them; 0 when it is our parent, who sends one */
    uint32_t keep;  /* how many of our own shall be ready or on their way */
    uint32_t asked; /* how many the helper is to make */
    struct network_list ready, seen; /* as new; and those that the helper is to look at */
};

void network_init(struct network *n);

/* Takes the socket on which the namespace of the first box will come. */
void network_expect(struct network *n, int socket);

/* Starts the helper, which keeps `count` ready. Without one everything works, only slower. */
void network_keep(struct network *n, uint32_t count);

/* A namespace of that owner's, as new, or -1. For our own the helper is waited for. */
int network_take(struct network *n, uint32_t owner);

/* Takes back one whose box is gone. */
void network_return(struct network *n, uint32_t owner, int fd);

/* Moves the caller into one; negative errno, with nothing changed, when that fails. */
int network_enter(int fd);

/* Back again. Negative errno when that fails, and then nothing may be started any more. */
int network_leave(const struct network *n);
