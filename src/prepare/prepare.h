/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hermes-prepare does the work of `hermes serve` that needs parsers and many rights, and does
 * not stay. It has two jobs:
 *
 * - `hermes-prepare [--SETTING VALUE]...`, which is `hermes serve`: reads settings and keys,
 *   chooses the server's user, opens the state directory and the addresses, and becomes
 *   hermes-monitor by exec.
 * - `hermes-prepare table`, which the monitor starts for each new spawner: finds the languages,
 *   builds their root trees, fills and seals the spawner's table, hands over the result. */

#include "proto/handover.h"
#include "proto/place.h"
#include "proto/reach.h"
#include "state/config.h"
#include "state/keys.h"

#include <stdbool.h>
#include <sys/types.h>

struct prepare {
    struct config config;
    struct keys keys;
    int lock_fd; /* lock on the state directory */
    int listen_fds[HANDOVER_MAX_LISTEN];
    unsigned listen_count;
    bool made_unix; /* the file of the unix socket exists and is ours */
    uid_t uid;      /* of the server */
    gid_t gid;
    uid_t egress_uid; /* of hermes-egress; without root: the same */
    gid_t egress_gid;
    uid_t inject_uid; /* of hermes-inject; without root: the same */
    gid_t inject_gid;
    struct network_ceiling ceiling;
    struct buf secrets; /* the table of hermes-inject; empty without secrets */
    struct buf trust;   /* authorities for boxes with a secret; empty without secrets */
    uid_t reach_uid;    /* of hermes-reach; without root: the same */
    gid_t reach_gid;
    uid_t places_uid; /* of hermes-places; without root: the same */
    gid_t places_gid;
    struct reach_table reach;
    struct place_table places;
    struct buf shell; /* the far shell, behind that table; empty without backends */
};

/* listen.c: opens the addresses of the settings, or takes the sockets of the service manager.
 * listen_close() removes the file of the unix socket too. */
int listen_open(struct prepare *p, struct err *err);
void listen_close(struct prepare *p);

/* Adds a problem for every invalid address, and for every address that is not loopback when
 * there is no key. */
void listen_check(const struct prepare *p, struct strv *problems);

/* user.c: chooses the users of the server, of hermes-egress, hermes-inject and hermes-reach:
 * the configured one, else one with the program's name (`hermes` for the server), else an
 * unused id. */
void choose_users(struct prepare *p, struct strv *problems);

/* network.c: makes the ceiling of networks from the settings. */
void prepare_network(struct prepare *p, struct strv *problems);

/* secrets.c: reads the values of secrets, and makes certificates for their hosts. */
void prepare_secrets(struct prepare *p, struct strv *problems);
/* reach.c: makes the table of hermes-reach from the settings, and checks those of approvals. */
void prepare_reach(struct prepare *p, struct strv *problems);

/* images.c: fills in the operator's own images. */
struct engine_options;
struct runtime_registry;
void prepare_images(const struct config *c, const struct runtime_registry *runtimes,
    struct engine_options *options);

/* become.c: becomes hermes-monitor with everything that was prepared. Returns only on failure.
 */
int become_monitor(struct prepare *p, struct err *err);

/* table.c: the job `hermes-prepare table`. Returns the exit status. */
int prepare_table(void);
