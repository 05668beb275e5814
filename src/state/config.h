/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The settings of `hermes serve`: one table for flag, environment, file, default and docs.
 * Precedence, highest first: flag, environment, .env, file, default. */

#include "base/buf.h"
#include "lang/limits.h"
#include "run/run.h"
#include "state/keys.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONFIG_MAX_ENV = 3, CONFIG_MAX_ROWS = 96 };
enum history_kind { HISTORY_MEMORY, HISTORY_SQLITE };

/* One member per row of config_table; strings are owned, never NULL, "" when unset. */
struct config {
    char *config_file;
    char *listen; /* "ADDR:PORT, ..."; "": host:port, or none when a unix socket is named */
    char *host;
    uint64_t port;
    char *unix_path;
    char *state_dir;
    char *user;
    char *keys_file;
    bool allow_unauthenticated;
    char *allowed_origin;
    char *hosts;
    char *log_level;
    bool debug;
    uint64_t min_level;

    uint64_t max_body;
    uint64_t max_connections;
    uint64_t request_timeout_s;
    uint64_t idle_timeout_s;
    uint64_t grace_s;

    uint64_t concurrency; /* 0: from the machine */
    uint64_t queue;
    uint64_t queue_wait_s;
    uint64_t memory_mb;        /* MiB promised to boxes at one time; 0: from the machine */
    uint64_t processes_total;  /* of all boxes together; 0: from the machine */
    uint64_t server_memory_mb; /* of the server's control group; 0: computed (memory_plan.h) */

    uint64_t cache_mb; /* of the compile cache; 0: none */
    bool cache_shared;
    uint64_t history; /* enum history_kind */
    uint64_t result_ttl_s;
    uint64_t history_max; /* bytes */
    bool history_requests;
    uint64_t resume_grace_s;
    bool share_networks;
    bool warm;
    uint64_t parked;
    uint64_t parked_free_percent;

    uint64_t max_sessions;
    uint64_t max_sessions_per_key;
    uint64_t session_memory_mb; /* 0: three quarters of memory_mb */
    uint64_t session_idle_s;
    uint64_t session_lifetime_s;
    bool session_warm;
    uint64_t session_parked;
    uint64_t session_terminals;

    struct run_limits maxima;

    char *api_token;
    char *auth_token;
    char *api_keys;
    char *signing_key; /* signs judgements; "" for none */

    uint64_t default_timeout_s;
    uint64_t max_timeout_s;
    uint64_t default_memory; /* bytes */
    uint64_t runner_max_memory_mb;
    uint64_t default_cpu_shares;
    uint64_t max_cpu_cores;
    uint64_t default_disk; /* bytes */
    uint64_t runner_max_disk_mb;
    bool default_allow_network;
    char *docker_socket;
    uint64_t cleanup_interval_hours; /* checked, as users of the compatible surface have it;
                                        images will use it */
    uint64_t cleanup_max_age_days;

    struct mount_table mounts;
};

enum config_kind {
    CONFIG_TEXT,
    CONFIG_BOOL,
    CONFIG_NUMBER,
    CONFIG_SIZE,    /* bytes: "16m" */
    CONFIG_SECONDS, /* "30", "30s", "5m" */
    CONFIG_LEVEL,   /* isolation level */
    CONFIG_HISTORY, /* memory or sqlite */
    CONFIG_CPUS,    /* thousandths of a core: "1.5" */
};

enum config_secrecy {
    CONFIG_PUBLIC,
    CONFIG_SECRET,        /* never printed, never passed on */
    CONFIG_SERVER_SECRET, /* never printed, passed on to the server only */
};

struct config_row {
    const char *key;                 /* in the file; the flag has dashes: --max-body */
    const char *env[CONFIG_MAX_ENV]; /* the first is the native name */
    enum config_kind kind;
    size_t offset;
    const char *fallback; /* as text */
    uint64_t min, max;    /* of numbers */
    enum config_secrecy secrecy;
    const char *text;
};
extern const struct config_row config_table[];
extern const size_t config_count;

/* Fills in *ret from argv (flags), the environment, ./.env, the file and the defaults. Returns
 * -EINVAL when anything is wrong; `problems` then has one line for each problem. */
int config_load(struct config *ret, int argc, char **argv, struct strv *problems);
void config_done(struct config *config);

/* Reads the settings that config_write() wrote: the monitor passes them to the server. */
int config_load_text(struct config *ret, const char *text, size_t len, struct strv *problems);
int config_write(const struct config *config, struct buf *to);

/* Collects the keys that the settings name. */
void config_keys(const struct config *config, struct keys *ret, struct strv *problems);

/* The table as Markdown for docs/configuration.md, and as help for a terminal. */
int config_document(struct buf *to);
int config_help(struct buf *to);
