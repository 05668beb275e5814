/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The client's side of proto/spawn.h: starts hermes-spawn, registers, seals, asks for boxes.
 */

#include "base/err.h"
#include "proto/spawn.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct spawner_client {
    int control_fd;
    pid_t pid;
    bool is_away; /* until the seal, which lets it have these again: */
    cpu_set_t cpus;
    struct birth *birth;     /* what the new process needs until it is the spawner, or NULL */
    int network_fd;          /* where the spawner waits for the first network, or -1 */
    bool is_ready;           /* the seal was answered well */
    struct spawn_reply seal; /* what the host enforces; valid once that is so */
};

/* Starts the program beside ours ($HERMES_SPAWN overrides), with no signal blocked or ignored,
 * and sends the setup. */
int spawner_start(struct spawner_client *c, const struct spawn_setup *setup, struct err *err);

/* Has the spawner work on other processors than ours until the seal, where there are any: the
 * kernel tends to let it wait for us on the one where it was forked. */
void spawner_send_away(struct spawner_client *c);

int spawner_add_source(
    struct spawner_client *c, const char *path, bool writable, struct err *err);
int spawner_add_root(
    struct spawner_client *c, const struct spawn_entry *entries, size_t count, struct err *err);

/* A zygote of a root that was added before; job_fd stays the caller's. */
int spawner_add_zygote(
    struct spawner_client *c, const struct spawn_zygote *zygote, int job_fd, struct err *err);

/* The same for a pool. */
int spawner_add_pool(
    struct spawner_client *c, const struct spawn_pool *pool, int job_fd, struct err *err);

/* Promises a network namespace for the first box. spawner_ready() makes it, while the spawner
 * is busy with the rest, and moves us into it too. */
int spawner_add_network(struct spawner_client *c, struct err *err);

/* Ends the registration. Boxes may be asked for at once; whether there will be any is what
 * spawner_ready() waits for. It fails with everything that is missing when the host cannot
 * enforce the minimum level. */
int spawner_seal(struct spawner_client *c, struct err *err);
int spawner_ready(struct spawner_client *c, struct err *err);

/* Has every feature tried instead of sealing. */
int spawner_probe(struct spawner_client *c, struct spawn_reply *ret, struct err *err);

/* Asks for a box; fds as in struct spawn_box, the first being the box's socket. Thread-safe. */
int spawner_box(struct spawner_client *c, const struct spawn_box *box, const int *fds,
    unsigned fd_count, struct err *err);

/* Closes the control socket and waits until the spawner has cleaned up and ended. */
void spawner_stop(struct spawner_client *c);

/* Closes the control socket only. */
void spawner_leave(struct spawner_client *c);

const char *spawner_step_text(unsigned step);
const char *spawner_level_name(unsigned level);
const char *spawner_cgroup_name(unsigned cgroup);
/* "full" ... "none"; -EINVAL otherwise. */
int spawner_level_parse(const char *name, unsigned *ret_level);

/* One row per feature: name, what it is for, what to do when it is missing. */
struct feature_info {
    const char *name;
    const char *text;
    const char *fix;
};
extern const struct feature_info feature_table[FEATURE_COUNT];
