/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The client's side of spawn/protocol.h: starts hermes-spawn, registers, seals, asks for boxes.
 */

#include "base/err.h"
#include "spawn/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct spawner_client {
    int control_fd;
    pid_t pid;
    struct spawn_reply seal; /* what the host enforces; valid after spawner_seal() */
};

/* Starts the program beside ours ($HERMES_SPAWN overrides) and sends the setup. */
int spawner_start(struct spawner_client *c, const struct spawn_setup *setup, struct err *err);

int spawner_add_source(
    struct spawner_client *c, const char *path, bool writable, struct err *err);
int spawner_add_root(
    struct spawner_client *c, const struct spawn_entry *entries, size_t count, struct err *err);

/* Ends the registration. Fails with everything that is missing when the host cannot enforce the
 * minimum level. */
int spawner_seal(struct spawner_client *c, struct err *err);

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
