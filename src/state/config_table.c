/* SPDX-License-Identifier: Apache-2.0 */

/* The settings, one row each, and the texts printed from them. docs/configuration.md is checked
 * against this table. A new setting needs a member of struct config and a row here. */

#include "state/config.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/wrap.h"
#include "run/cache/cache.h"

#include <string.h>

enum { HELP_TEXT_COLUMN = 29 };

#define AT(member) offsetof(struct config, member)
#define TEXT(key, member, dflt, says, ...)                                                     \
    {                                                                                          \
        key, {__VA_ARGS__}, CONFIG_TEXT, AT(member), dflt, 0, 0, CONFIG_PUBLIC, says           \
    }
#define SECRET(key, member, secrecy, says, ...)                                                \
    {                                                                                          \
        key, {__VA_ARGS__}, CONFIG_TEXT, AT(member), "", 0, 0, secrecy, says                   \
    }
#define VALUE(kind, key, member, dflt, lo, hi, says, ...)                                      \
    {                                                                                          \
        key, {__VA_ARGS__}, kind, AT(member), dflt, lo, hi, CONFIG_PUBLIC, says                \
    }
#define LIMIT(key, member, dflt, hi, env, says, ...)                                           \
    VALUE(CONFIG_NUMBER, key, maxima.member, dflt, 1, hi, says, env, ##__VA_ARGS__)

const struct config_row config_table[] = {
    TEXT("config", config_file, "",
        "file with these settings; /etc/hermes/hermes.conf is "
        "read when it exists",
        "HERMES_CONFIG"),
    TEXT("listen", listen, "",
        "addresses to serve, ADDR:PORT with commas between; takes the "
        "place of host and port",
        "HERMES_LISTEN"),
    TEXT("host", host, "127.0.0.1", "address to serve", "HERMES_HOST", "HOST"),
    VALUE(CONFIG_NUMBER, "port", port, "8000", 0, 65535,
        "port to serve; 0 lets the kernel "
        "choose one, which the log names",
        "HERMES_PORT", "PORT"),
    TEXT("unix", unix_path, "",
        "path of a unix socket to serve; without `listen` no address "
        "is served beside it",
        "HERMES_UNIX"),
    TEXT("state_dir", state_dir, "",
        "where Hermes keeps everything; /var/lib/hermes as root, "
        "else $XDG_STATE_HOME/hermes",
        "HERMES_STATE_DIR"),
    TEXT("runtimes", runtimes, "",
        "directory with base.json and the languages of Hermes; the installed one",
        "HERMES_RUNTIMES"),
    TEXT("runtime_dir", runtime_dir, "",
        "directories with more languages, with colons between (see runtimes.md)",
        "RUNTIME_DIR"),
    TEXT("user", user, "",
        "user that the server runs as when started by root; `hermes` if "
        "there is one, else an id of its own (65520)",
        "HERMES_USER"),
    TEXT(
        "keys_file", keys_file, "", "file with API keys, names and quotas", "HERMES_KEYS_FILE"),
    VALUE(CONFIG_BOOL, "allow_unauthenticated", allow_unauthenticated, "false", 0, 1,
        "serve other addresses than loopback without any key", "HERMES_ALLOW_UNAUTHENTICATED"),
    TEXT("allowed_origin", allowed_origin, "http://localhost:3000",
        "origins that browsers may "
        "call from, with commas between; `*` for all",
        "HERMES_ALLOWED_ORIGIN", "ALLOWED_ORIGIN"),
    TEXT("hosts", hosts, "",
        "names that requests may have in Host, with commas between; an address or `localhost` "
        "is always right. Without keys, and where this is set, another Host is 421",
        "HERMES_HOSTS"),
    TEXT("log_level", log_level, "info", "error, warn, info or debug", "HERMES_LOG_LEVEL",
        "LOG_LEVEL"),
    VALUE(CONFIG_BOOL, "debug", debug, "false", 0, 1,
        "add a line on limits and usage to "
        "`std_log` of /execute",
        "HERMES_DEBUG", "DEBUG"),
    VALUE(CONFIG_LEVEL, "min_level", min_level, "strong", 0, 0,
        "least isolation: full, strong "
        "or process",
        "HERMES_MIN_LEVEL"),

    VALUE(CONFIG_SIZE, "max_body", max_body, "16m", 1024, 1 << 30, "largest request body",
        "HERMES_MAX_BODY"),
    VALUE(CONFIG_NUMBER, "max_connections", max_connections, "4096", 16, 65536,
        "connections "
        "at one time",
        "HERMES_MAX_CONNECTIONS"),
    VALUE(CONFIG_SECONDS, "request_timeout_s", request_timeout_s, "30", 1, 3600,
        "time for the "
        "headers of a request, and again for its body, in all",
        "HERMES_REQUEST_TIMEOUT_S"),
    VALUE(CONFIG_SECONDS, "idle_timeout_s", idle_timeout_s, "75", 1, 3600,
        "time until the "
        "next request of a connection",
        "HERMES_IDLE_TIMEOUT_S"),
    VALUE(CONFIG_SECONDS, "grace_s", grace_s, "10", 0, 3600,
        "time for running requests to end "
        "after SIGTERM",
        "HERMES_GRACE_S"),

    VALUE(CONFIG_NUMBER, "concurrency", concurrency, "0", 0, 4000,
        "runs and execs of sessions at one time; 0: twice "
        "the cores, at least 4",
        "HERMES_CONCURRENCY", "WORKER_COUNT"),
    VALUE(CONFIG_NUMBER, "queue", queue, "1024", 0, 100000,
        "runs that may wait; past it "
        "requests get 429",
        "HERMES_QUEUE"),
    VALUE(CONFIG_BOOL, "share_networks", share_networks, "false", 0, 1,
        "a network namespace that a box of one key has left may serve a box of another key, "
        "once it looks like new",
        "HERMES_SHARE_NETWORKS"),
    VALUE(CONFIG_BOOL, "warm", warm, "true", 0, 1,
        "start interpreters before they are needed, where a language can", "HERMES_WARM"),
    VALUE(CONFIG_NUMBER, "parked", parked, "8", 0, 256,
        "boxes of each such language kept ready for the next run; the most where runtime.json "
        "says "
        "how many",
        "HERMES_PARKED"),
    VALUE(CONFIG_NUMBER, "parked_free_percent", parked_free_percent, "10", 0, 100,
        "no box is kept ready while less of the machine's memory is available",
        "HERMES_PARKED_FREE_PERCENT"),
    VALUE(CONFIG_SECONDS, "queue_wait_s", queue_wait_s, "60", 1, 3600,
        "longest wait of one run", "HERMES_QUEUE_WAIT_S"),
    VALUE(CONFIG_NUMBER, "memory_mb", memory_mb, "0", 0, 1 << 24,
        "memory promised to boxes at "
        "one time, seven eighths of it to one of several keys; 0: four fifths of the machine "
        "or of its control group",
        "HERMES_MEMORY_MB"),
    VALUE(CONFIG_NUMBER, "processes_total", processes_total, "0", 0, 1 << 22,
        "processes and threads of all boxes at one time, three quarters of them to one of "
        "several keys; 0: half of what the machine or its "
        "control group allows",
        "HERMES_PROCESSES_TOTAL"),
    VALUE(CONFIG_NUMBER, "server_memory_mb", server_memory_mb, "0", 0, 1 << 24,
        "memory of the server itself, as a limit of its control group; 0: what memory_mb, "
        "history_max and max_connections ask for",
        "HERMES_SERVER_MEMORY_MB"),

    VALUE(CONFIG_NUMBER, "cache_mb", cache_mb, CACHE_MB_DEFAULT, 0, CACHE_MB_MAX,
        "MiB of compiled programs that are kept; 0: none", "HERMES_CACHE_MB"),
    VALUE(CONFIG_BOOL, "cache_shared", cache_shared, "false", 0, 1,
        "keys share compiled programs; otherwise each key has its own", "HERMES_CACHE_SHARED"),
    VALUE(CONFIG_HISTORY, "history", history, "sqlite", 0, 0,
        "where results are kept: memory, "
        "or sqlite (survives a restart)",
        "HERMES_HISTORY"),
    VALUE(CONFIG_SECONDS, "result_ttl_s", result_ttl_s, "900", 1, 31536000,
        "how long results "
        "are kept",
        "HERMES_RESULT_TTL_S"),
    VALUE(CONFIG_SIZE, "history_max", history_max, "256m", 1 << 20, 1ull << 40,
        "most bytes of "
        "kept results; the oldest of the key that has most are removed first",
        "HERMES_HISTORY_MAX"),
    VALUE(CONFIG_BOOL, "history_requests", history_requests, "false", 0, 1,
        "keep the requests of runs beside their results, also without keep_request",
        "HERMES_HISTORY_REQUESTS"),
    VALUE(CONFIG_SECONDS, "resume_grace_s", resume_grace_s, "10", 0, 3600,
        "how long a streamed "
        "run goes on without a reader",
        "HERMES_RESUME_GRACE_S"),

    VALUE(CONFIG_NUMBER, "max_sessions", max_sessions, "256", 0, 4000,
        "sessions at one time; 0: none may be made", "HERMES_MAX_SESSIONS"),
    VALUE(CONFIG_NUMBER, "max_sessions_per_key", max_sessions_per_key, "64", 0, 4000,
        "sessions of one key; where there are several keys, at most three quarters of "
        "max_sessions",
        "HERMES_MAX_SESSIONS_PER_KEY"),
    VALUE(CONFIG_NUMBER, "session_memory_mb", session_memory_mb, "0", 0, 1 << 24,
        "memory promised to sessions at one time, three quarters of it to one of several keys; "
        "0: three quarters of memory_mb",
        "HERMES_SESSION_MEMORY_MB"),
    VALUE(CONFIG_SECONDS, "session_idle_s", session_idle_s, "1800", 1, 31536000,
        "how long a session may be idle when it does not say", "HERMES_SESSION_IDLE_S"),
    VALUE(CONFIG_SECONDS, "session_lifetime_s", session_lifetime_s, "86400", 1, 31536000,
        "longest life of a session", "HERMES_SESSION_LIFETIME_S"),
    VALUE(CONFIG_BOOL, "session_warm", session_warm, "false", 0, 1,
        "start the interpreters that sessions are forked from with the server, not with the "
        "first session",
        "HERMES_SESSION_WARM"),
    VALUE(CONFIG_NUMBER, "session_parked", session_parked, "1", 0, 64,
        "boxes of each such language kept ready for the next session", "HERMES_SESSION_PARKED"),
    VALUE(CONFIG_NUMBER, "session_terminals", session_terminals, "4", 0, 8,
        "terminals of one session at one time; 0: none", "HERMES_SESSION_TERMINALS"),

    VALUE(CONFIG_NUMBER, "image_store_mb", image_store_mb, "20480", 1, 1 << 24,
        "MiB of all images; past it the least recently used are removed",
        "HERMES_IMAGE_STORE_MB"),
    VALUE(CONFIG_NUMBER, "image_max_age_days", image_max_age_days, "0", 0, 36500,
        "days after which an image is removed; 0: never", "HERMES_IMAGE_MAX_AGE_DAYS"),
    VALUE(CONFIG_NUMBER, "image_refresh_h", image_refresh_h, "24", 0, 87600,
        "hours after which a recipe without a lock is built again; 0: never",
        "HERMES_IMAGE_REFRESH_H"),
    TEXT("operator_images", operator_images, "data",
        "recipes of the operator's own images, with commas between: the name of a shipped one, "
        "a directory with recipe.json and lock.txt, or a .json file. Once `hermes image "
        "build --operator` has built one, every key can use it, and its packages are imported "
        "ahead",
        "HERMES_OPERATOR_IMAGES"),
    TEXT("session_image", session_image, "data",
        "the one of these images that a session of its language gets when it names none; "
        "empty: none",
        "HERMES_SESSION_IMAGE"),
    VALUE(CONFIG_NUMBER, "image_warm_mb", image_warm_mb, "2048", 0, 1 << 24,
        "MiB of interpreters that have imported an image's packages ahead; 0: none",
        "HERMES_IMAGE_WARM_MB"),
    VALUE(CONFIG_SECONDS, "image_warm_idle_s", image_warm_idle_s, "600", 1, 31536000,
        "how long such an interpreter stays without a request", "HERMES_IMAGE_WARM_IDLE_S"),
    TEXT("pip_index", pip_index, "",
        "URL of the package index for pip; without it pip's own. Put no password in it: setup "
        "scripts of images can read it",
        "HERMES_PIP_INDEX"),
    TEXT("npm_registry", npm_registry, "", "URL of the registry for npm; without it npm's own",
        "HERMES_NPM_REGISTRY"),
    VALUE(CONFIG_BOOL, "uv", uv, "true", 0, 1,
        "install Python packages with uv, where `make runtimes` has put it; false: with pip",
        "HERMES_UV"),
    TEXT("registry_hosts", registry_hosts, "",
        "what the boxes that build images may reach, as entries of `allow` with commas "
        "between: the hosts of the package index and of its files",
        "HERMES_REGISTRY_HOSTS"),
    TEXT("registry_ca", registry_ca, "", "file with more certificates that these boxes trust",
        "HERMES_REGISTRY_CA"),
    VALUE(CONFIG_BOOL, "seeds", seeds, "true", 0, 1,
        "make seeds, which speed up compilers, when nothing runs (see runtimes.md)",
        "HERMES_SEEDS"),
    TEXT("seed_dir", seed_dir, "",
        "where seeds are kept; /var/cache/hermes as root, else $XDG_CACHE_HOME/hermes",
        "HERMES_SEED_DIR"),
    VALUE(CONFIG_NUMBER, "seed_idle_s", seed_idle_s, "30", 0, 1 << 30,
        "seconds without work after which also seeds are made that no request has needed yet; "
        "0: never",
        "HERMES_SEED_IDLE_S"),
    VALUE(CONFIG_NUMBER, "build_wall_ms", build_wall_ms, "600000", 1000, 86400000,
        "longest time of a build", "HERMES_BUILD_WALL_MS"),
    VALUE(CONFIG_NUMBER, "build_memory_mb", build_memory_mb, "4096", 64, 1 << 24,
        "memory of a build, its files included", "HERMES_BUILD_MEMORY_MB"),
    VALUE(CONFIG_NUMBER, "build_disk_mb", build_disk_mb, "3072", 16, 1 << 24,
        "files of a build, and of the layer that it makes", "HERMES_BUILD_DISK_MB"),

    LIMIT("max_wall_ms", wall_ms, "600000", 86400000, "HERMES_MAX_WALL_MS",
        "most wall_ms that "
        "a request may ask for"),
    LIMIT("max_cpu_ms", cpu_ms, "600000", 86400000, "HERMES_MAX_CPU_MS", "most cpu_ms"),
    LIMIT("max_memory_mb", memory_mb, "16384", 1 << 24, "HERMES_MAX_MEMORY_MB",
        "most "
        "memory_mb, and never more than memory_mb above",
        "MAX_MEMORY_MB"),
    LIMIT(
        "max_processes", processes, "1024", 1 << 20, "HERMES_MAX_PROCESSES", "most processes"),
    LIMIT("max_open_files", open_files, "16384", 1 << 20, "HERMES_MAX_OPEN_FILES",
        "most open_files"),
    LIMIT("max_disk_mb", disk_mb, "16384", 1 << 24, "HERMES_MAX_DISK_MB", "most disk_mb",
        "MAX_DISK_MB"),
    LIMIT("max_file_size_mb", file_size_mb, "16384", 1 << 24, "HERMES_MAX_FILE_SIZE_MB",
        "most file_size_mb"),
    LIMIT("max_stack_mb", stack_mb, "4096", 1 << 20, "HERMES_MAX_STACK_MB", "most stack_mb"),
    LIMIT(
        "max_output_kb", output_kb, "65536", 1 << 20, "HERMES_MAX_OUTPUT_KB", "most output_kb"),
    VALUE(CONFIG_CPUS, "max_cpus", maxima.cpu_milli, "64", 50, 1 << 20, "most cpus",
        "HERMES_MAX_CPUS"),

    LIMIT("max_network_connections", network_connections, "1024", 4096,
        "HERMES_MAX_NETWORK_CONNECTIONS", "most network_connections"),
    LIMIT("max_network_mb", network_mb, "65536", 1 << 20, "HERMES_MAX_NETWORK_MB",
        "most network_mb"),

    VALUE(CONFIG_NETWORK, "network_max", network_max, "full", 0, 0,
        "the most that `network` of a request may be: none, allow or full",
        "HERMES_NETWORK_MAX"),
    TEXT("network_open", network_open, "",
        "closed ranges that the `allow` of a request may name, with commas between: "
        "10.1.0.0/16, "
        "fd00:1::/32",
        "HERMES_NETWORK_OPEN"),
    TEXT("network_closed", network_closed, "",
        "ranges that are closed in addition, with commas between", "HERMES_NETWORK_CLOSED"),
    TEXT("network_closed_names", network_closed_names, "",
        "names that are closed, with all names below them; commas between",
        "HERMES_NETWORK_CLOSED_NAMES"),
    TEXT("network_allowed", network_allowed, "",
        "with network_max = allow: entries, with commas between; a request may name these and "
        "parts of them. Without it a request may name anything public",
        "HERMES_NETWORK_ALLOWED"),
    TEXT("network_resolvers", network_resolvers, "",
        "addresses of name servers, with commas between; without it those of /etc/resolv.conf",
        "HERMES_NETWORK_RESOLVERS"),
    TEXT("network_upstream", network_upstream, "",
        "HTTP proxy for all connections of boxes: http://HOST:PORT", "HERMES_NETWORK_UPSTREAM"),
    TEXT("network_upstream_credentials", network_upstream_credentials, "",
        "file with USER:PASSWORD for that proxy", "HERMES_NETWORK_UPSTREAM_CREDENTIALS"),
    VALUE(CONFIG_BOOL, "network_upstream_filters", network_upstream_filters, "false", 0, 1,
        "that proxy refuses private and other closed addresses; `full` needs it",
        "HERMES_NETWORK_UPSTREAM_FILTERS"),
    VALUE(CONFIG_BOOL, "network_upstream_resolves", network_upstream_resolves, "false", 0, 1,
        "names of boxes are resolved by that proxy, not here",
        "HERMES_NETWORK_UPSTREAM_RESOLVES"),
    VALUE(CONFIG_NUMBER, "network_connections_all", network_connections_all, "100000", 0,
        UINT32_MAX, "connections of a box over its life; 0: no limit",
        "HERMES_NETWORK_CONNECTIONS_ALL"),
    VALUE(CONFIG_NUMBER, "network_connections_s", network_connections_s, "100", 0, UINT32_MAX,
        "new connections of a box in a second, and half of its look-ups; 0: no limit",
        "HERMES_NETWORK_CONNECTIONS_S"),
    VALUE(CONFIG_NUMBER, "network_lookups", network_lookups, "64", 0, UINT32_MAX,
        "names that a box looks up at one time; 0: no limit", "HERMES_NETWORK_LOOKUPS"),
    VALUE(CONFIG_NUMBER, "network_mb_s", network_mb_s, "0", 0, 1 << 20,
        "MiB a second that a box sends, and that it receives; 0: no limit",
        "HERMES_NETWORK_MB_S"),
    VALUE(CONFIG_NUMBER, "network_key_connections", network_key_connections, "2048", 0,
        UINT32_MAX, "connections of all boxes of one key at one time; 0: no limit",
        "HERMES_NETWORK_KEY_CONNECTIONS"),
    VALUE(CONFIG_NUMBER, "network_key_connections_s", network_key_connections_s, "1000", 0,
        UINT32_MAX,
        "new connections of all boxes of one key in a second, and half of their look-ups; 0: "
        "no limit",
        "HERMES_NETWORK_KEY_CONNECTIONS_S"),
    VALUE(CONFIG_NUMBER, "network_key_lookups", network_key_lookups, "512", 0, UINT32_MAX,
        "names that all boxes of one key look up at one time; 0: no limit",
        "HERMES_NETWORK_KEY_LOOKUPS"),
    VALUE(CONFIG_NUMBER, "network_key_mb_s", network_key_mb_s, "0", 0, 1 << 20,
        "MiB a second that all boxes of one key send, and that they receive; 0: no limit",
        "HERMES_NETWORK_KEY_MB_S"),
    TEXT("network_user", network_user, "",
        "user that hermes-egress runs as when started by root; `hermes-egress` if there is "
        "one, "
        "else an id of its own (65521)",
        "HERMES_NETWORK_USER"),
    VALUE(CONFIG_NUMBER, "network_memory_mb", network_memory_mb, "512", 32, 1 << 24,
        "memory of hermes-egress, as a limit of its control group", "HERMES_NETWORK_MEMORY_MB"),
    VALUE(CONFIG_CPUS, "network_cpus", network_cpus, "1", 50, 1 << 20,
        "cores of hermes-egress, as a limit of its control group", "HERMES_NETWORK_CPUS"),

    TEXT("backends", backends, "",
        "file with sections [backend NAME]: places for sessions outside of boxes; they may "
        "also stand in the settings file",
        "HERMES_BACKENDS"),
    TEXT("backends_user", backends_user, "",
        "user that commands of backends and their ssh clients run as when started by root; "
        "not root and not the server's user",
        "HERMES_BACKENDS_USER"),
    VALUE(CONFIG_NUMBER, "backends_memory_mb", backends_memory_mb, "2048", 64, 1 << 24,
        "memory of hermes-places with all commands of local backends, as a limit of its "
        "control group",
        "HERMES_BACKENDS_MEMORY_MB"),

    VALUE(CONFIG_APPROVALS, "approval_mode", approval_mode, "off", 0, 0,
        "who is asked about an effect leaving a box: off (no one), manual (a person), smart "
        "or gated (the reviewer, then a person); see approvals.md",
        "HERMES_APPROVAL_MODE"),
    VALUE(CONFIG_SECONDS, "approval_timeout_s", approval_timeout_s, "300", 1, 86400,
        "how long an effect waits for a decision; then it is declined",
        "HERMES_APPROVAL_TIMEOUT_S"),
    TEXT("approvers", approvers, "",
        "names of the keys that decide about approvals, with commas between; without it each "
        "key decides about its own",
        "HERMES_APPROVERS"),
    TEXT("approval_webhook_url", approval_webhook_url, "",
        "address to which Hermes sends each approval (POST, JSON); a person counts as "
        "reachable then",
        "HERMES_APPROVAL_WEBHOOK_URL"),
    TEXT("reviewer_url", reviewer_url, "",
        "the reviewer: address of an OpenAI-compatible endpoint, such as "
        "https://HOST/v1/chat/completions",
        "HERMES_REVIEWER_URL"),
    TEXT("reviewer_key_file", reviewer_key_file, "",
        "file with the reviewer's key; only hermes-reach has it", "HERMES_REVIEWER_KEY_FILE"),
    TEXT("reviewer_model", reviewer_model, "", "model that the reviewer is asked for",
        "HERMES_REVIEWER_MODEL"),
    TEXT("reviewer_api", reviewer_api, "chat",
        "form of the reviewer's requests: chat (completions) or responses",
        "HERMES_REVIEWER_API"),
    VALUE(CONFIG_SECONDS, "reviewer_timeout_s", reviewer_timeout_s, "30", 1, 300,
        "time for the reviewer's answer; a later one goes to a person",
        "HERMES_REVIEWER_TIMEOUT_S"),
    VALUE(CONFIG_CPUS, "reviewer_min_confidence", reviewer_min_confidence, "0.75", 0, 1000,
        "confidence below which an approval of the reviewer goes to a person; never less than "
        "0.75",
        "HERMES_REVIEWER_MIN_CONFIDENCE"),
    TEXT("reviewer_max_risk", reviewer_max_risk, "medium",
        "risk above which an approval of the reviewer goes to a person: low or medium",
        "HERMES_REVIEWER_MAX_RISK"),
    VALUE(CONFIG_NUMBER, "reviewer_max_context_chars", reviewer_max_context_chars, "12000", 0,
        1000000, "length of what the reviewer is shown, from 1000 to 50000 characters",
        "HERMES_REVIEWER_MAX_CONTEXT_CHARS"),

    SECRET("api_token", api_token, CONFIG_SECRET, "a key named `api-token`", "HERMES_API_TOKEN",
        "API_TOKEN"),
    SECRET("auth_token", auth_token, CONFIG_SECRET, "a key named `auth-token`",
        "HERMES_AUTH_TOKEN", "AUTH_TOKEN"),
    SECRET("api_keys", api_keys, CONFIG_SECRET,
        "keys named `api-key-1` and so on, with commas between", "HERMES_API_KEYS",
        "CODE_RUNNER_API_KEYS"),
    SECRET("signing_key", signing_key, CONFIG_SERVER_SECRET,
        "answers of /v1/judge are signed with it (HMAC-SHA256); `hermes verify` checks them",
        "HERMES_SIGNING_KEY"),

    VALUE(CONFIG_SECONDS, "default_timeout_s", default_timeout_s, "30", 1, 86400,
        "/run: "
        "timeout when the request names none",
        "HERMES_DEFAULT_TIMEOUT_S", "DEFAULT_TIMEOUT"),
    VALUE(CONFIG_SECONDS, "max_timeout_s", max_timeout_s, "300", 1, 86400,
        "/run: longest "
        "timeout",
        "HERMES_MAX_TIMEOUT_S", "MAX_TIMEOUT"),
    VALUE(CONFIG_SIZE, "default_memory", default_memory, "256m", 4 << 20, 1ull << 44,
        "/run: mem_limit when the request names "
        "none",
        "HERMES_DEFAULT_MEMORY", "DEFAULT_MEMORY"),
    VALUE(CONFIG_NUMBER, "runner_max_memory_mb", runner_max_memory_mb, "2048", 4, 1 << 24,
        "/run: most mem_limit, and never more than max_memory_mb",
        "HERMES_RUNNER_MAX_MEMORY_MB", "MAX_MEMORY_MB"),
    VALUE(CONFIG_NUMBER, "default_cpu_shares", default_cpu_shares, "1024", 2, 262144,
        "/run: "
        "cpu_shares when the request names none; 1024 is one core",
        "HERMES_DEFAULT_CPU_SHARES", "DEFAULT_CPU_SHARES"),
    VALUE(CONFIG_CPUS, "max_cpu_cores", max_cpu_cores, "4", 50, 1 << 20, "/run: most cores",
        "HERMES_MAX_CPU_CORES", "MAX_CPU_CORES"),
    VALUE(CONFIG_SIZE, "default_disk", default_disk, "512m", 1 << 20, 1ull << 44,
        "/run: disk_limit when the request names none", "HERMES_DEFAULT_DISK", "DEFAULT_DISK"),
    VALUE(CONFIG_NUMBER, "runner_max_disk_mb", runner_max_disk_mb, "5000", 1, 1 << 24,
        "/run: most disk_limit", "HERMES_RUNNER_MAX_DISK_MB", "MAX_DISK_MB"),
    VALUE(CONFIG_BOOL, "default_allow_network", default_allow_network, "false", 0, 1,
        "/run: "
        "allow_network when the request does not say",
        "HERMES_DEFAULT_ALLOW_NETWORK", "DEFAULT_ALLOW_NETWORK"),
    TEXT("docker_socket", docker_socket, "",
        "socket of Docker or Podman: makes the backend `docker`, for every caller, whose state "
        "/health reports as docker_connected",
        "HERMES_DOCKER_SOCKET", "DOCKER_SOCKET"),
    VALUE(CONFIG_CPUS, "cleanup_interval_hours", cleanup_interval_hours, "24", 1, 87600000,
        "prebuilt images: time between clean-ups", "HERMES_CLEANUP_INTERVAL_HOURS",
        "CLEANUP_INTERVAL_HOURS"),
    VALUE(CONFIG_NUMBER, "cleanup_max_age_days", cleanup_max_age_days, "7", 0, 36500,
        "prebuilt images: age at which they are removed", "HERMES_CLEANUP_MAX_AGE_DAYS",
        "CLEANUP_MAX_AGE_DAYS"),
};
const size_t config_count = sizeof(config_table) / sizeof(config_table[0]);

_Static_assert(sizeof(config_table) / sizeof(config_table[0]) <= CONFIG_MAX_ROWS,
    "state/config.c has room to note where each row comes from");

int config_document(struct buf *to)
{
    int r = buf_append_str(to, "| setting | environment | default | |\n|---|---|---|---|\n");
    for (size_t i = 0; r == 0 && i < config_count; i++) {
        const struct config_row *row = &config_table[i];
        r = buf_printf(to, "| `%s` | ", row->key);
        for (size_t k = 0; r == 0 && k < CONFIG_MAX_ENV && row->env[k]; k++)
            r = buf_printf(to, "%s`%s`", k ? ", " : "", row->env[k]);
        if (r == 0 && row->fallback[0])
            r = buf_printf(to, " | `%s` | %s |\n", row->fallback, row->text);
        else if (r == 0)
            r = buf_printf(to, " | | %s |\n", row->text);
    }
    return r;
}

int config_help(struct buf *to, int width)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < config_count; i++) {
        const struct config_row *row = &config_table[i];
        cleanup_free char *flag = xstrdup(row->key);
        for (char *p = flag; *p; p++)
            *p = *p == '_' ? '-' : *p;
        cleanup_free char *head = xasprintf("  --%-23s  ", flag);
        cleanup_free char *text = xasprintf("%s%s%s%s", row->text, row->fallback[0] ? " (" : "",
            row->fallback, row->fallback[0] ? ")" : "");
        r = buf_append_str(to, head);
        if (r == 0)
            r = wrap_text(to, text, (int)strlen(head), HELP_TEXT_COLUMN, width);
    }
    return r;
}
