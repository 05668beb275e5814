/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The settings of `hermes serve`: one table for flag, environment, file, default and docs.
 * Precedence, highest first: flag, environment, .env, file, default. */

#include "base/buf.h"
#include "lang/limits.h"
#include "network/ceiling.h"
#include "run/run.h"
#include "state/keys.h"
#include "state/place_table.h"
#include "state/secret_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONFIG_MAX_ENV = 3, CONFIG_MAX_ROWS = 128 };
enum history_kind { HISTORY_MEMORY, HISTORY_SQLITE };

/* One member per row of config_table; strings are owned, never NULL, "" when unset. */
struct config {
    char *config_file;
    char *listen; /* "ADDR:PORT, ..."; "": host:port, or none when a unix socket is named */
    char *host;
    uint64_t port;
    char *unix_path;
    char *state_dir;
    char *runtimes;
    char *runtime_dir;
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

    /* The ceiling of networks (network/ceiling.h); numbers of 0: no limit. */
    uint64_t network_max; /* enum network_mode */
    char *network_open;
    char *network_closed;
    char *network_closed_names;
    char *network_allowed;
    char *network_resolvers;
    char *network_upstream;
    char *network_upstream_credentials; /* path of a file */
    bool network_upstream_filters;
    bool network_upstream_resolves;
    uint64_t network_connections_all;
    uint64_t network_connections_s;
    uint64_t network_lookups;
    uint64_t network_mb_s;
    uint64_t network_key_connections;
    uint64_t network_key_connections_s;
    uint64_t network_key_lookups;
    uint64_t network_key_mb_s;
    char *network_user;
    char *backends;
    char *backends_user;
    uint64_t backends_memory_mb; /* of hermes-places with all its places */
    uint64_t network_memory_mb;  /* of the control group of hermes-egress */
    uint64_t network_cpus;

    bool seeds;
    char *seed_dir; /* "" after the start: there is none */
    uint64_t seed_idle_s;
    uint64_t image_store_mb;
    uint64_t image_max_age_days; /* 0: they stay */
    uint64_t image_refresh_h;
    char *operator_images; /* names or paths, with commas between */
    char *session_image;
    uint64_t image_warm_mb;
    uint64_t image_warm_idle_s;
    char *pip_index;
    char *npm_registry;
    bool uv;
    char *registry_hosts;
    char *registry_ca; /* path of a file */
    uint64_t build_wall_ms;
    uint64_t build_memory_mb;
    uint64_t build_disk_mb;
    uint64_t approval_mode; /* enum approval_mode */
    uint64_t approval_timeout_s;
    char *approvers; /* names of keys, with commas between */
    char *approval_webhook_url;
    char *reviewer_url;
    char *reviewer_key_file;
    char *reviewer_model;
    char *reviewer_api; /* "chat" or "responses" */
    char *reviewer_max_risk;
    uint64_t reviewer_timeout_s;
    uint64_t reviewer_min_confidence; /* thousandths */
    uint64_t reviewer_max_context_chars;

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
    uint64_t cleanup_interval_hours; /* thousandths */
    uint64_t cleanup_max_age_days;

    struct mount_table mounts;
    struct secret_table secrets;
    struct place_table places;
};

enum config_kind {
    CONFIG_TEXT,
    CONFIG_BOOL,
    CONFIG_NUMBER,
    CONFIG_SIZE,      /* bytes: "16m" */
    CONFIG_SECONDS,   /* "30", "30s", "5m" */
    CONFIG_LEVEL,     /* isolation level */
    CONFIG_HISTORY,   /* memory or sqlite */
    CONFIG_CPUS,      /* thousandths of a core, or of something else: "1.5" */
    CONFIG_NETWORK,   /* none, allow or full */
    CONFIG_APPROVALS, /* enum approval_mode */
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
    const char *fallback; /* the default, as text */
    uint64_t min, max;    /* bounds of a number */
    enum config_secrecy secrecy;
    const char *text;
};
extern const struct config_row config_table[];
extern const size_t config_count;

/* Reads backends from a file whose name ends in .yaml or .yml (state/terminal_config.h). */
typedef void config_yaml(const char *text, size_t len, struct place_table *table,
    struct strv *problems, struct strv *notes);

/* Fills in *ret from argv (flags), the environment, ./.env, the file and the defaults. Returns
 * -EINVAL when anything is wrong; `problems` then has one line for each problem. */
int config_load(
    struct config *ret, int argc, char **argv, config_yaml *yaml, struct strv *problems);
void config_done(struct config *config);

/* Reads the settings that config_write() wrote: the monitor passes them to the server. */
int config_load_text(struct config *ret, const char *text, size_t len, struct strv *problems);
int config_write(const struct config *config, struct buf *to);

/* The settings of networks as network/ceiling.h takes them; borrowed from `config`. The
 * credentials are left out. */
void config_network(const struct config *config, struct network_settings *ret);

/* Collects the keys that the settings name. */
void config_keys(const struct config *config, struct keys *ret, struct strv *problems);

/* The table as Markdown for docs/configuration.md, and as the rows of --help with lines of at
 * most `width` columns. */
int config_document(struct buf *to);
int config_help(struct buf *to, int width);
