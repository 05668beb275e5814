/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Network namespaces made ahead. The kernel takes longer for one than for all the rest of a
 * box's namespaces together, so somebody makes them while the spawner does something else:
 * `hermes run` itself, over a socket that it hands over before the seal, or for a server a
 * helper process of the spawner. Each serves one box, and nobody in the box can change it,
 * since it belongs to the spawner's user namespace.
 *
 * Only root can come back from such a namespace into the host's. Without root, and whenever
 * none is ready, clone3() makes the box's and box init raises its loopback. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct network {
    int home_fd;    /* the spawner's own namespace */
    int socket;     /* where they come from; -1 when from nowhere */
    pid_t helper;   /* who sends them; 0 when it is our parent, who sends one */
    uint32_t asked; /* of the helper, and not received yet */
};

void network_init(struct network *n);

/* Takes the socket on which the namespace of the first box will come. */
void network_expect(struct network *n, int socket);

/* Starts the helper, which keeps `count` ready. Without one everything works, only slower. */
void network_keep(struct network *n, uint32_t count);

/* Moves the caller into a fresh namespace; false, with nothing changed, when none is there. */
bool network_enter(struct network *n);

/* Back again. Negative errno when that fails, and then nothing may be started any more. */
int network_leave(const struct network *n);
