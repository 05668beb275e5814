/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state that all parts of a server share. service_open() and service_close() open and close
 * it (service/service.h). */

#include "approval/approval.h"
#include "base/ledger.h"
#include "run/engine.h"
#include "state/admit.h"
#include "state/board.h"
#include "state/config.h"
#include "state/history/history.h"
#include "state/keys.h"
#include "state/metrics.h"

#include <stdatomic.h>

struct mcp;
struct connect_asks;
struct sessions;
struct image;
struct image_store;
struct build_queue;
struct seed_keeper;
struct template_keeping;

/* Archives of images that are packed at one time; at most one of them for a key. */
enum { STATE_EXPORTS_MAX = 2 };

struct state {
    struct config config;
    struct keys keys;
    struct network_ceiling ceiling; /* of the networks of boxes */
    struct run_files trust;         /* authorities for boxes with a secret (secrets.h) */
    struct runtime_registry runtimes;
    struct engine *engine;
    struct admit *admit;
    struct history *history;
    struct run_store *store; /* or NULL */
    struct approvals *approvals;
    struct connect_asks *asks; /* about connections of boxes */
    int reach_fd;              /* to hermes-reach */
    int places_fd;             /* to hermes-places */
    int meminfo_fd;            /* /proc/meminfo, opened before the server was confined */
    struct sessions *sessions;
    struct image_store *images; /* or NULL: this server has none */
    struct image *own_images;   /* of the operator (image/operator.h) */
    size_t own_image_count;
    struct seed_keeper *seeds;          /* service/seeds.h, or NULL: this server makes none */
    struct template_keeping *templates; /* service/templates.h, or NULL */
    struct build_queue *builds;         /* builds of images that run or wait */
    struct ledger *spools;              /* disk for archives of images on their way in or out */
    int exporting[STATE_EXPORTS_MAX];   /* owner of each export, + 2; 0: free. board.lock */
    char *registry_ca;                  /* text of the setting's file, or NULL */
    uint64_t cleaned_at_ms; /* when prebuilt images were cleaned, or the first tick */
    atomic_bool is_cleaning;
    struct board board;     /* runs and judgements under way */
    uint64_t terminals_max; /* of all sessions together */
    struct mcp *mcp;        /* NULL without MCP */
    struct metrics metrics;
    uint64_t started_ms;
    atomic_bool stopping;
    atomic_int background;   /* background threads: runs, judgements, execs, calibration */
    struct ledger *ledger;   /* memory of requests, outputs and replies under way */
    struct ledger *spills;   /* disk for outputs that do not fit into an answer */
    char *cases_dir;         /* attack cases for service/selftest.h, or NULL */
    atomic_bool is_attacked; /* a selftest runs */
    uint64_t memory_max;     /* bytes of the whole server, counted or not */
    uint64_t store_failures; /* failures of the store at the last tick */
};

/* Waits while a spawner that died is being replaced. -ECANCELED when cancel_fd (or -1) becomes
 * readable. */
int state_wait_for_spawner(struct state *state, int cancel_fd, struct err *err);

struct history_owner state_owner(const struct state *state, int owner);

/* The name of a key, "" for none. */
const char *state_owner_name(const struct state *state, int owner);

/* Whether this caller sees what belongs to all keys: a key with `role = operator`, or any
 * caller of a server without keys. */
bool state_is_operator(const struct state *state, int owner);

/* The caller as approvals know it. */
struct approval_viewer state_viewer(const struct state *state, int owner);

/* Sets the error for a refusal by the ledger. Requests that wait, outputs that grow and replies
 * that no client reads can hold memory for as long as their clients like. Therefore all of them
 * are counted in the ledger before they take any. */
int state_full(struct err *err);
