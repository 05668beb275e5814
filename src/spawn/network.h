/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Network namespaces. The kernel takes longer to make and to remove one than all other
 * namespaces of a box together. So they are made in parallel to the spawner's work: by `hermes
 * run` itself, which sends one over a socket that it hands over before the seal, or, for a
 * server, by a helper process of the spawner. The helper also inspects the namespaces of boxes
 * that are gone. One that looks like new, because no packet was ever sent in it, is used again
 * (network_fresh.h), by boxes of the same key (SPAWN_BOX's owner); the others are closed. With
 * SETUP_SHARE_NETWORKS boxes of any key may use it.
 *
 * The payload cannot change its network namespace: the namespace belongs to the user namespace
 * of the spawner, or of the zygote that made the box. It can be entered only from there, so
 * each has an owner.
 *
 * Only root can return from such a namespace to the host's. Without root, and whenever none is
 * ready, clone3() makes the namespace and box init raises its loopback. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { NETWORK_POOL_MAX = 32, NETWORK_OURS = 0 };

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

struct network {
    int home_fd;    /* the spawner's own namespace; -1 when it cannot return to it */
    int socket;     /* to the helper, or to `hermes run`; -1: no source */
    pid_t helper;   /* pid of the helper; 0 when there is none and `hermes run` sends one
                       namespace */
    uint32_t keep;  /* how many new ones of the spawner's own shall be ready or on their way */
    uint32_t asked; /* how many the helper still has to make */
    bool is_shared; /* SETUP_SHARE_NETWORKS: a key does not matter */
    /* `ready` are as good as new; `seen` are with the helper for inspection */
    struct network_list ready, seen;
};

void network_init(struct network *n);

/* Takes the socket on which `hermes run` will send the namespace of the first box. */
void network_expect(struct network *n, int socket);

/* Starts the helper, which keeps `count` ready. Everything works without it, only slower. */
void network_keep(struct network *n, uint32_t count);

/* Returns a namespace of that owner that is as good as new and served no other key than *key,
 * or -1. *key becomes the key of the namespace: the same, or NETWORK_NEW. For NETWORK_OURS it
 * waits up to 1 s for an answer of the helper or of `hermes run`. */
int network_take(struct network *n, uint32_t owner, uint64_t *key);

/* Takes back the namespace of a box that is gone and served this key, or none (NETWORK_NEW). */
void network_return(struct network *n, uint32_t owner, uint64_t key, int fd);

/* Moves the caller into a namespace. On failure (negative errno) nothing has changed. */
int network_enter(int fd);

/* Moves the caller back. After a failure (negative errno) the spawner must not start
 * anything. */
int network_leave(const struct network *n);
