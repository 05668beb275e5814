/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The client side of proto/spawn.h: starts hermes-spawn, registers roots, seals the table, asks
 * for boxes. */

#include "base/err.h"
#include "proto/spawn.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct spawner_client {
    int control_fd;
    pid_t pid;
    bool is_away; /* spawner_send_away() changed its processors; the seal restores `cpus` */
    cpu_set_t cpus;
    struct birth *birth; /* memory that the new process uses until it has executed hermes-spawn,
                            or NULL */
    int network_fd;      /* the socket on which the spawner expects the first network, or -1 */
    bool is_ready;       /* the seal was answered without an error */
    struct spawn_reply seal; /* the features that the host enforces; valid when is_ready */
};

/* Starts the program at `path`, or, when that is NULL, hermes-spawn beside this program, with
 * no signal blocked or ignored. Sends the setup. */
int spawner_start(struct spawner_client *c, const char *path, const struct spawn_setup *setup,
    struct err *err);

/* The same for a spawner that another process has started. Takes control_fd. */
int spawner_adopt(
    struct spawner_client *c, int control_fd, const struct spawn_setup *setup, struct err *err);

/* Keeps the spawner off our processor until the seal, if there are others. Otherwise the kernel
 * tends to leave it waiting for us on the processor where it was forked. */
void spawner_send_away(struct spawner_client *c);

int spawner_add_source(
    struct spawner_client *c, const char *path, enum spawn_writable writable, struct err *err);
int spawner_add_root(
    struct spawner_client *c, const struct spawn_entry *entries, size_t count, struct err *err);

/* Registers a zygote for a root that was added before. The caller keeps package_fd. */
int spawner_add_zygote(struct spawner_client *c, const struct spawn_zygote *zygote,
    int package_fd, struct err *err);

/* The same for a pool. */
int spawner_add_pool(
    struct spawner_client *c, const struct spawn_pool *pool, int package_fd, struct err *err);

/* Promises a network namespace for the first box. spawner_ready() makes it, while the spawner
 * is busy with the rest, and moves the caller into it too. */
int spawner_add_network(struct spawner_client *c, struct err *err);

/* Gives the spawner the socket on which sockets of hermes-egress come (proto/egress.h). The
 * caller keeps fd. */
int spawner_add_egress(struct spawner_client *c, int fd, struct err *err);

/* spawner_seal() ends the registration; boxes may be requested at once. spawner_ready() waits
 * for the answer. It fails when the host cannot enforce the minimum level, and lists the
 * missing features. */
int spawner_seal(struct spawner_client *c, struct err *err);
int spawner_ready(struct spawner_client *c, struct err *err);

/* Makes the spawner test every feature, instead of sealing. */
int spawner_probe(struct spawner_client *c, struct spawn_reply *ret, struct err *err);

/* Asks for the root of an image and waits for it. The root lives as long as *ret_socket is
 * open. An error of the spawner is returned without a text in err. Thread-safe. */
int spawner_image(struct spawner_client *c, const struct spawn_image *image, int *ret_socket,
    uint32_t *ret_root, struct err *err);

/* Asks for a box. fds are those of struct spawn_box; the first is the box's socket.
 * Thread-safe. */
int spawner_box(struct spawner_client *c, const struct spawn_box *box, const int *fds,
    unsigned fd_count, struct err *err);

/* Closes the control socket and waits until the spawner has cleaned up and ended. */
void spawner_stop(struct spawner_client *c);

/* Closes the control socket only. */
void spawner_leave(struct spawner_client *c);

/* The modes of networks (enum network_mode) that a host with this report enforces, one bit
 * each. *ret_missing is why others are not enforced: what the kernel lacks, or an error; ""
 * when nothing is missing. It lives as long as the report, or forever. */
unsigned spawner_network_modes(const struct spawn_reply *report, const char **ret_missing);

const char *spawner_step_text(unsigned step);
const char *spawner_level_name(unsigned level);
const char *spawner_cgroup_name(unsigned cgroup);
/* Parses "full" to "none"; -EINVAL otherwise. */
int spawner_level_parse(const char *name, unsigned *ret_level);

/* One row per feature: its name, its purpose, and the remedy when it is missing. */
struct feature_info {
    const char *name;
    const char *text;
    const char *fix;
};
extern const struct feature_info feature_table[FEATURE_COUNT];
