/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The messages between hermes-prepare, hermes-monitor and hermes-server over SOCK_SEQPACKET
 * pairs: a kind and descriptors. Texts and tables are sealed memfds. A program finds its socket
 * at HANDOVER_FD. All programs are of the same build. */

#include "base/buf.h"
#include "base/err.h"
#include "base/os/fdpass.h"

#include <stddef.h>
#include <stdint.h>

enum {
    HANDOVER_FD = 3,
    HANDOVER_MAX_TEXT = 64 << 20,
    HANDOVER_MAX_LISTEN = 32,
    HANDOVER_MAX_LOCKS = 128, /* of at most 64 root trees and 64 seeds */
};

/* The descriptors of a message stand in the order of the enum that it names. */
enum handover_kind {
    HANDOVER_PLAN = 1, /* to the monitor, from the hermes-prepare that it was before: PLAN_* */
    HANDOVER_SPAWNED,  /* to `hermes-prepare table`: SPAWNED_* */
    HANDOVER_LOCKS,    /* from it: locks on root trees and seeds; several messages */
    HANDOVER_SEALED,   /* from it: the spawner's table is sealed: SEALED_*. No bit: the
                        * runtimes and the table have not changed */
    HANDOVER_HELLO,    /* to the server: HELLO_* */
    HANDOVER_SPAWNER,  /* to the server: control socket of a new spawner with the same table */
    HANDOVER_READY,    /* from the server: it accepts requests */
};
/* PLAN_CEILING: a struct network_ceiling for hermes-egress (egress.h); it may have a secret.
 * PLAN_SECRETS: the table of hermes-inject (inject.h), or empty. PLAN_TRUST: struct
 * handover_trust and two files, or empty. PLAN_REACH: a struct reach_table for hermes-reach
 * (reach.h). PLAN_PLACES: a struct place_table for hermes-places (place.h). Both have secrets.
 */
enum {
    PLAN_FACTS,
    PLAN_SETTINGS,
    PLAN_KEYS,
    PLAN_CEILING,
    PLAN_SECRETS,
    PLAN_TRUST,
    PLAN_REACH,
    PLAN_PLACES,
    PLAN_LOCK,
    PLAN_LISTEN
};
/* SPAWNED_EGRESS: the spawner's end of the socket of SPAWN_EGRESS. */
enum { SPAWNED_SETTINGS, SPAWNED_CONTROL, SPAWNED_EGRESS, SPAWNED_COUNT };
enum { OLD_RUNTIMES = SPAWNED_COUNT, OLD_TABLE, SPAWNED_WITH_OLD };
enum { SEALED_RUNTIMES, SEALED_TABLE, SEALED_COUNT };
enum {
    HELLO_SETTINGS,
    HELLO_KEYS,
    HELLO_RUNTIMES,
    HELLO_TABLE,
    HELLO_CONTROL,
    HELLO_TRUST,
    HELLO_REACH,  /* the socket for calls to hermes-reach */
    HELLO_PLACES, /* the socket for requests to hermes-places */
    HELLO_LISTEN  /* the first of the listening sockets */
};

/* The programs that call outside. PLAN_REACH + X and HELLO_REACH + X are the descriptors of X.
 */
enum outside { OUTSIDE_REACH, OUTSIDE_PLACES, OUTSIDE_COUNT };

struct handover_outside {
    uint32_t is_wanted;
    uint32_t uid, gid;
    uint32_t may_gain;  /* it may execute setuid programs: a row of `local` permits sudo */
    uint64_t memory_mb; /* of its control group */
};

/* The settings that the monitor itself needs. */
struct handover_plan {
    uint32_t uid, gid;         /* of the server */
    uint64_t grace_ms;         /* for running requests after SIGTERM */
    uint64_t server_memory_mb; /* of the server's control group */
    uint32_t has_egress;       /* the ceiling permits networks: start hermes-egress */
    uint32_t egress_uid, egress_gid;
    uint32_t egress_cpu_milli; /* of its control group, thousandths of a core */
    uint64_t egress_memory_mb;
    uint32_t has_secrets; /* start hermes-inject */
    uint32_t inject_uid, inject_gid;
    struct handover_outside outside[OUTSIDE_COUNT];
    char log_level[16];
    char unix_path[108]; /* socket file to remove at the end; "" for none */
};

/* The authorities that boxes with a secret trust. Behind it: a PEM file, then a Java key store.
 */
struct handover_trust {
    uint64_t pem_len;
};

/* The caller keeps the descriptors. */
int handover_send(int socket, enum handover_kind kind, const int *fds, unsigned fd_count);

/* Waits for a message. The caller owns the received descriptors. Returns 1 with a message, 0 at
 * the end of the socket, or negative errno. */
int handover_receive(
    int socket, enum handover_kind *ret_kind, int fds[FDPASS_MAX], unsigned *ret_count);

/* Writes text to a sealed memfd and returns its descriptor, or negative errno. Reading closes
 * the memfd. */
int handover_write_text(const char *name, const struct buf *text);
int handover_read_text(int fd, struct buf *to);
