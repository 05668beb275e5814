/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Network namespaces. The kernel takes longer to make and to remove one than all other
 * namespaces of a box together. So they are made in parallel to the spawner's work: by `hermes
 * run` itself, which sends one over a socket that it hands over before the seal, or, for a
 * server, by a helper, hermes-network (proto/kit.h). The helper also inspects the namespaces of
 * boxes that are gone. One that looks like new, because no packet was ever sent in it, is used
 * again (kit/fresh.h), by boxes of the same key (SPAWN_BOX's owner); the others are closed.
 * With SETUP_SHARE_NETWORKS boxes of any key may use it. A namespace that had a kit (egress.h)
 * is never used again: its routes stay, and no inspection sees them.
 *
 * Once a box with a network was asked for, the helper also makes namespaces with a kit.
 *
 * The payload cannot change its network namespace: the namespace belongs to the user namespace
 * of the spawner, or of the zygote that made the box. It can be entered only from there, so
 * each has an owner.
 *
 * Only root can return from such a namespace to the host's. Without root, and whenever none is
 * ready, clone3() makes the namespace and box init raises its loopback. */

#include "proto/kit.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { NETWORK_POOL_MAX = 32, NETWORK_OURS = 0, NETWORK_KITS_MAX = 4 };

/* The key of a namespace that has served no box, or that any key may have. Other values are
 * numbers of keys. */
#define NETWORK_NEW UINT64_MAX

/* Oldest first. */
struct network_list {
    struct {
        int fd;
        uint32_t owner; /* NETWORK_OURS, or the zygote's serial number */
        uint64_t key;   /* the key that it served, or NETWORK_NEW */
    } at[NETWORK_POOL_MAX];
    unsigned count;
};

/* A namespace with a kit. */
struct network_kit {
    int ns;
    int fds[KIT_COUNT];
    unsigned count; /* of `fds`: all, or only the part for IPv4 */
};

/* How many descriptors the kit has that comes with an answer. */
static inline unsigned kit_size(const struct kit_answer *answer)
{
    return answer->has_v6 ? KIT_COUNT : KIT_COUNT_V4;
}

struct network {
    int program_fd; /* hermes-network; opened when it is first needed, else -1 */
    int home_fd;    /* the spawner's own namespace; -1 when it cannot return to it */
    int socket;     /* to the helper, or to `hermes run`; -1: no source */
    pid_t helper;   /* pid of the helper; 0 when there is none and `hermes run` sends one
                       namespace */
    uint32_t keep;  /* how many unused namespaces to have, ready or ordered from the helper */
    uint32_t asked; /* how many namespaces the helper was asked for and has not sent yet */
    bool is_up;     /* the helper has answered; no box waits for one that has not */
    bool is_shared; /* SETUP_SHARE_NETWORKS: a namespace may serve another key than before */
    /* `ready`: namespaces that a box can have at once. `seen`: used namespaces that the helper
     * inspects. */
    struct network_list ready, seen;
    struct network_kit kits[NETWORK_KITS_MAX];
    unsigned kit_count;
    uint32_t kits_asked;
};

void network_init(struct network *n);

/* The program hermes-network, or negative errno. To be called first before the seal, while the
 * host's paths lead there. */
int network_program(struct network *n);

/* Takes the socket on which `hermes run` will send the namespace of the first box. */
void network_expect(struct network *n, int socket);

/* Starts the helper, which keeps `count` ready. Everything works without it, only slower. */
void network_keep(struct network *n, uint32_t count);

/* Returns a namespace of that owner that is as good as new and served no other key than *key,
 * or -1. *key becomes the key of the namespace: the same, or NETWORK_NEW. For NETWORK_OURS it
 * waits up to 1 s for an answer of `hermes run`, or of a helper that has answered before. */
int network_take(struct network *n, uint32_t owner, uint64_t *key);

/* Gives a namespace with a kit of the spawner's own, if one was made ahead, and has others
 * made. The caller owns its descriptors. */
bool network_take_kit(struct network *n, struct network_kit *ret);

/* Takes back the namespace of a box that is gone and served this key, or none (NETWORK_NEW).
 * One that is spoilt had a kit. */
void network_return(struct network *n, uint32_t owner, uint64_t key, int fd, bool is_spoilt);

/* Closes all namespaces and kits that no box has. */
void network_forget(struct network *n);

/* Moves the caller into a namespace. On failure (negative errno) nothing has changed. */
int network_enter(int fd);

/* Moves the caller back. After a failure (negative errno) the spawner must not start
 * anything. */
int network_leave(const struct network *n);
