/* SPDX-License-Identifier: Apache-2.0 */

/* See config.h. The table is the documentation: docs/configuration.md is checked against it. A
 * new setting needs a member and a row. All problems are collected, instead of stopping at the
 * first, so that an operator can correct a file in one go. */

#include "state/config.h"

#include "approval/mode.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "network/entry.h"
#include "run/spawner.h"
#include "state/ini.h"
#include "state/memory_plan.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a settings file. */
enum { FILE_MAX = 1 << 20 };

/* The origin of each row's current value. A value from a source of lower rank is ignored. */
enum source {
    SOURCE_NONE,
    SOURCE_DEFAULT,
    SOURCE_FILE,
    SOURCE_DOTENV,
    SOURCE_ENV,
    SOURCE_FLAG
};

struct loading {
    struct config *config;
    struct strv *problems;
    enum source set_by[CONFIG_MAX_ROWS];
    char *set_as[CONFIG_MAX_ROWS]; /* the name that the user wrote: "--port", "PORT", "port" */
    enum source source;            /* the source being read */
    const char *where;             /* its name for messages */
};

static void complain(struct loading *l, const char *name, const char *why)
{
    strv_add_owned(l->problems, xasprintf("%s: %s: %s", l->where, name, why));
}

/* Complains about a name that is not a setting, with the nearest one. `word` is the name as it
 * stands there. */
static void complain_unknown(struct loading *l, const char *word, const char *name, size_t len)
{
    cleanup_free char *key = xstrndup(name, len);
    struct nearest near = {.word = key};
    for (char *p = key; *p; p++)
        *p = *p == '-' ? '_' : *p;
    for (size_t i = 0; i < config_count; i++)
        nearest_try(&near, config_table[i].key);
    cleanup_free char *why = near.name
                                 ? xasprintf("unknown setting; did you mean %s?", near.name)
                                 : xstrdup("unknown setting; see `hermes serve --help`");
    complain(l, word, why);
}

/* Parses a value of any kind to a number. -EINVAL: wrong form; -ERANGE: out of range. */
static int parse_value(const struct config_row *row, const char *text, uint64_t *ret)
{
    unsigned level;
    int r;
    bool is_on = false;
    switch (row->kind) {
    case CONFIG_BOOL:
        r = str_parse_bool(text, &is_on);
        *ret = is_on;
        return r;
    case CONFIG_SIZE:
        r = str_parse_size(text, ret);
        break;
    case CONFIG_SECONDS:
        r = str_parse_duration_ms(text, ret);
        *ret = r == 0 ? (*ret + 999) / 1000 : 0;
        break;
    case CONFIG_CPUS:
        r = text[strcspn(text, "hms")] ? -EINVAL : str_parse_duration_ms(text, ret);
        break;
    case CONFIG_NETWORK:
        return network_max_parse(text, ret);
    case CONFIG_APPROVALS:
        r = approval_mode_find(text);
        *ret = r < 0 ? 0 : (uint64_t)r;
        return r < 0 ? -EINVAL : 0;
    case CONFIG_LEVEL:
        r = spawner_level_parse(text, &level);
        *ret = level;
        return r < 0 || level == 0 ? -EINVAL : 0;
    case CONFIG_HISTORY:
        *ret = str_eq(text, "sqlite") ? HISTORY_SQLITE : HISTORY_MEMORY;
        return *ret == HISTORY_SQLITE || str_eq(text, "memory") ? 0 : -EINVAL;
    default:
        r = str_parse_u64(text, ret);
        break;
    }
    if (r == 0 && (*ret < row->min || *ret > row->max))
        return -ERANGE;
    return r;
}

static const char *kind_text(enum config_kind kind)
{
    static const char *const texts[] = {
        [CONFIG_TEXT] = "a line of text",
        [CONFIG_BOOL] = "true or false",
        [CONFIG_NUMBER] = "a number",
        [CONFIG_SIZE] = "a size such as 16m",
        [CONFIG_SECONDS] = "seconds, or a time such as 5m",
        [CONFIG_LEVEL] = "full, strong or process",
        [CONFIG_HISTORY] = "memory or sqlite",
        [CONFIG_CPUS] = "a number such as 1.5",
        [CONFIG_NETWORK] = "none, allow or full",
        [CONFIG_APPROVALS] = "off, manual, smart or gated",
    };
    return texts[kind];
}

static void store_value(struct config *config, const struct config_row *row, uint64_t value)
{
    char *member = (char *)config + row->offset;
    if (row->kind == CONFIG_BOOL)
        *(bool *)member = value;
    else
        *(uint64_t *)member = value;
}

/* Notes that the current source has set the row. */
static void mark(struct loading *l, const struct config_row *row, const char *name)
{
    char **set_as = &l->set_as[row - config_table];
    l->set_by[row - config_table] = l->source;
    free(*set_as);
    *set_as = xstrdup(name);
}

/* Sets row from text unless a source of higher rank did. `name` is the name that the user
 * wrote. */
static void set(
    struct loading *l, const struct config_row *row, const char *name, const char *text)
{
    uint64_t value = 0;
    if (l->set_by[row - config_table] > l->source)
        return;
    if (row->kind == CONFIG_TEXT) {
        for (const char *p = text; *p; p++) {
            if ((unsigned char)*p < 0x20 || *p == 0x7f) {
                complain(l, name, "there is a control character in it");
                return;
            }
        }
        char **member = (char **)((char *)l->config + row->offset);
        free(*member);
        *member = xstrdup(text);
        mark(l, row, name);
        return;
    }
    int r = parse_value(row, text, &value);
    if (r == -ERANGE) {
        double unit = row->kind == CONFIG_CPUS ? 1000 : 1;
        cleanup_free char *why = xasprintf("`%.64s` is not within %.12g and %.12g", text,
            (double)row->min / unit, (double)row->max / unit);
        complain(l, name, why);
    } else if (r < 0) {
        cleanup_free char *why = xasprintf("`%.64s` is not %s", text, kind_text(row->kind));
        complain(l, name, why);
    } else {
        store_value(l->config, row, value);
        mark(l, row, name);
    }
}

static const struct config_row *find_key(const char *key)
{
    for (size_t i = 0; i < config_count; i++) {
        if (str_eq(config_table[i].key, key))
            return &config_table[i];
    }
    return NULL;
}

static struct mount_def *find_mount(struct loading *l, const char *name)
{
    struct config *c = l->config;
    for (size_t i = 0; i < c->mounts.count; i++) {
        if (str_eq(c->mounts.items[i].name, name))
            return &c->mounts.items[i];
    }
    if (c->mounts.count == MOUNT_TABLE_MAX) {
        complain(l, name, "there are more than 32 mounts");
        return NULL;
    }
    struct mount_def *mount = &c->mounts.items[c->mounts.count++];
    *mount = (struct mount_def){.name = xstrdup(name), .path = xstrdup("")};
    return mount;
}

static void set_mount(struct loading *l, const char *name, const char *key, const char *value)
{
    struct mount_def *mount = find_mount(l, name);
    if (!mount)
        return;
    if (str_eq(key, "path") && value[0] == '/') {
        free(mount->path);
        mount->path = xstrdup(value);
    } else if (str_eq(key, "mode") && (str_eq(value, "ro") || str_eq(value, "rw"))) {
        mount->writable = str_eq(value, "rw");
    } else {
        complain(l, name, "a mount has `path = /DIR` and `mode = ro` or `rw`");
    }
}

static void set_backend(
    struct loading *l, const char *section, const char *key, const char *value)
{
    const char *why =
        place_table_set(&l->config->places, section + strlen("backend "), key, value);
    cleanup_free char *where = xasprintf("%s: %s", section, key);
    if (why)
        complain(l, where, why);
}

static void on_file_entry(
    void *context, unsigned line, const char *section, const char *key, const char *value)
{
    struct loading *l = context;
    const struct config_row *row = find_key(key);
    const char *why = NULL;
    if (str_has_prefix(section, "mount "))
        set_mount(l, section + strlen("mount "), key, value);
    else if (str_has_prefix(section, "secret "))
        why = secret_table_set(&l->config->secrets, section + strlen("secret "), key, value);
    else if (str_has_prefix(section, "backend "))
        set_backend(l, section, key, value);
    else if (section[0])
        why = "unknown section; there are [mount NAME], [secret NAME] and [backend NAME]";
    else if (!row || str_eq(key, "config"))
        complain_unknown(l, key, key, strlen(key));
    else
        set(l, row, key, value);
    if (why)
        complain(l, section, why);
}

/* Ignores variables in .env that are not settings: they belong to other programs. */
static void on_env_entry(
    void *context, unsigned line, const char *section, const char *key, const char *value)
{
    struct loading *l = context;
    for (size_t i = 0; i < config_count; i++) {
        for (size_t k = 0; k < CONFIG_MAX_ENV && config_table[i].env[k]; k++) {
            if (str_eq(config_table[i].env[k], key))
                set(l, &config_table[i], key, value);
        }
    }
}

static void on_bad_line(void *context, unsigned line, const char *why)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "line %u", line);
    complain(context, name, why);
}

static void read_file(struct loading *l, const char *path, enum ini_form form, bool must_exist)
{
    cleanup_buf struct buf text;
    struct err err = {0};
    buf_init(&text, FILE_MAX);
    int r = fs_read_trusted(path, &text, &err);
    /* Only root may be able to read the machine's own file. It does not apply to a user who
     * runs Hermes without root. */
    bool is_not_ours = r == -EACCES && form == INI_CONFIG && geteuid() != 0;
    if ((r == -ENOENT || is_not_ours) && !must_exist)
        return;
    l->where = path;
    if (r < 0)
        strv_add_owned(l->problems, xstrdup(err.message));
    else
        ini_read(text.data ? text.data : "", text.len, form,
            form == INI_ENV ? on_env_entry : on_file_entry, on_bad_line, l);
}

/* The native name wins over the names kept for compatibility. An empty variable counts as
 * unset. */
static void read_environment(struct loading *l)
{
    l->where = "environment";
    for (size_t i = 0; i < config_count; i++) {
        for (size_t k = CONFIG_MAX_ENV; k-- > 0;) {
            const char *name = config_table[i].env[k];
            const char *value = name ? getenv(name) : NULL;
            if (value && value[0])
                set(l, &config_table[i], name, value);
        }
    }
}

/* Finds max_body for "--max-body". */
static const struct config_row *find_flag(const char *flag, size_t len)
{
    for (size_t i = 0; i < config_count; i++) {
        const char *key = config_table[i].key;
        size_t at = 0;
        while (
            at < len && key[at] && (key[at] == flag[at] || (key[at] == '_' && flag[at] == '-')))
            at++;
        if (at == len && !key[at])
            return &config_table[i];
    }
    return NULL;
}

static void read_flags(struct loading *l, int argc, char **argv)
{
    l->where = "flag";
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!str_has_prefix(arg, "--")) {
            complain(l, arg, "settings are given as --name VALUE; see --help");
            continue;
        }
        size_t len = strcspn(arg + 2, "=");
        const struct config_row *row = find_flag(arg + 2, len);
        const char *value = arg[2 + len] == '=' ? arg + 3 + len : NULL;
        if (!row) {
            complain_unknown(l, arg, arg + 2, len);
            continue;
        }
        if (!value && row->kind == CONFIG_BOOL && (i + 1 == argc || argv[i + 1][0] == '-'))
            value = "true";
        else if (!value && i + 1 < argc)
            value = argv[++i];
        if (value)
            set(l, row, arg, value);
        else
            complain(l, arg, "the value is missing");
    }
}

static void set_defaults(struct loading *l)
{
    l->source = SOURCE_DEFAULT;
    l->where = "default";
    for (size_t i = 0; i < config_count; i++)
        set(l, &config_table[i], config_table[i].key, config_table[i].fallback);
}

static const char *name_of(const struct loading *l, const char *key)
{
    return l->set_as[find_key(key) - config_table];
}

/* Checks that need more than one row. The messages have the names that the user wrote. */
static void check_whole(struct loading *l)
{
    const struct config *c = l->config;
    l->where = "settings";
    if (c->max_timeout_s < c->default_timeout_s) {
        cleanup_free char *why =
            xasprintf("%llus is less than %s (%llus)", (unsigned long long)c->max_timeout_s,
                name_of(l, "default_timeout_s"), (unsigned long long)c->default_timeout_s);
        complain(l, name_of(l, "max_timeout_s"), why);
    }
    uint64_t least_mb = memory_plan_least_mb(c);
    if (c->server_memory_mb && c->server_memory_mb < least_mb) {
        cleanup_free char *why =
            xasprintf("it must be 0 or at least %llu with this %s, %s and %s",
                (unsigned long long)least_mb, name_of(l, "max_body"),
                name_of(l, "max_connections"), name_of(l, "history_max"));
        complain(l, name_of(l, "server_memory_mb"), why);
    }
    for (char *p = c->log_level; *p; p++)
        *p = (char)tolower((unsigned char)*p); /* LOG_LEVEL=INFO is common */
    if (log_set_level(c->log_level) < 0)
        complain(l, name_of(l, "log_level"), "it is error, warn, info or debug");
    for (size_t i = 0; i < c->mounts.count; i++) {
        if (!c->mounts.items[i].path[0])
            complain(l, c->mounts.items[i].name, "this mount has no path");
    }
    secret_table_check(&l->config->secrets, l->problems);
    if (c->docker_socket[0]) {
        const char *why = place_table_add_docker(&l->config->places, c->docker_socket);
        if (why)
            complain(l, name_of(l, "docker_socket"), why);
    }
    place_table_check(&l->config->places, l->problems);
    for (size_t i = 0; i < config_count; i++)
        free(l->set_as[i]);
}

/* Reads backends from the configuration file of the user's agent. Its other keys are ignored.
 */
static void read_yaml(struct loading *l, config_yaml *yaml)
{
    cleanup_buf struct buf text;
    struct strv notes = {0};
    struct err err = {0};
    const char *path = l->config->backends;
    buf_init(&text, FILE_MAX);
    if (fs_read_trusted(path, &text, &err) < 0)
        strv_add_owned(l->problems, xstrdup(err.message));
    else
        yaml(text.data ? text.data : "", text.len, &l->config->places, l->problems, &notes);
    for (size_t i = 0; i < notes.count; i++)
        log_event(LOG_WARN, "a line of the backends is not used", "file", path, "reason",
            notes.items[i], (char *)NULL);
    strv_done(&notes);
}

static bool is_yaml(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (str_eq(dot, ".yaml") || str_eq(dot, ".yml"));
}

int config_load(
    struct config *ret, int argc, char **argv, config_yaml *yaml, struct strv *problems)
{
    struct loading l = {.config = ret, .problems = problems};
    size_t before = problems->count;
    *ret = (struct config){0};
    set_defaults(&l);
    l.source = SOURCE_FLAG;
    read_flags(&l, argc, argv);
    l.source = SOURCE_ENV;
    read_environment(&l);
    l.source = SOURCE_DOTENV;
    read_file(&l, ".env", INI_ENV, false);
    l.source = SOURCE_FILE;
    bool named = ret->config_file[0];
    read_file(&l, named ? ret->config_file : "/etc/hermes/hermes.conf", INI_CONFIG, named);
    if (yaml && is_yaml(ret->backends))
        read_yaml(&l, yaml);
    else if (ret->backends[0])
        read_file(&l, ret->backends, INI_CONFIG, true);
    check_whole(&l);
    return problems->count > before ? -EINVAL : 0;
}

int config_load_text(struct config *ret, const char *text, size_t len, struct strv *problems)
{
    struct loading l = {.config = ret, .problems = problems};
    size_t before = problems->count;
    *ret = (struct config){0};
    set_defaults(&l);
    l.source = SOURCE_FILE;
    l.where = "settings of the monitor";
    ini_read(text, len, INI_CONFIG, on_file_entry, on_bad_line, &l);
    check_whole(&l);
    return problems->count > before ? -EINVAL : 0;
}

void config_done(struct config *config)
{
    for (size_t i = 0; i < config_count; i++) {
        if (config_table[i].kind == CONFIG_TEXT)
            free(*(char **)((char *)config + config_table[i].offset));
    }
    for (size_t i = 0; i < config->mounts.count; i++) {
        free(config->mounts.items[i].name);
        free(config->mounts.items[i].path);
    }
    secret_table_done(&config->secrets);
    *config = (struct config){0};
}

static int write_row(const struct config *config, const struct config_row *row, struct buf *to)
{
    const char *member = (const char *)config + row->offset;
    uint64_t value = row->kind == CONFIG_TEXT   ? 0
                     : row->kind == CONFIG_BOOL ? *(const bool *)member
                                                : *(const uint64_t *)member;
    switch (row->kind) {
    case CONFIG_TEXT:
        return buf_printf(to, "%s = %s\n", row->key, *(char *const *)member);
    case CONFIG_LEVEL:
        return buf_printf(to, "%s = %s\n", row->key, spawner_level_name((unsigned)value));
    case CONFIG_HISTORY:
        return buf_printf(
            to, "%s = %s\n", row->key, value == HISTORY_SQLITE ? "sqlite" : "memory");
    case CONFIG_CPUS:
        return buf_printf(to, "%s = %llu.%03llu\n", row->key,
            (unsigned long long)(value / 1000), (unsigned long long)(value % 1000));
    case CONFIG_NETWORK:
        return buf_printf(to, "%s = %s\n", row->key, network_mode_name((unsigned)value));
    case CONFIG_APPROVALS:
        return buf_printf(
            to, "%s = %s\n", row->key, approval_mode_name((enum approval_mode)value));
    default:
        return buf_printf(to, "%s = %llu\n", row->key, (unsigned long long)value);
    }
}

int config_write(const struct config *config, struct buf *to)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < config_count; i++) {
        if (config_table[i].secrecy != CONFIG_SECRET && !str_eq(config_table[i].key, "config"))
            r = write_row(config, &config_table[i], to);
    }
    for (size_t i = 0; r == 0 && i < config->mounts.count; i++)
        r = buf_printf(to, "[mount %s]\npath = %s\nmode = %s\n", config->mounts.items[i].name,
            config->mounts.items[i].path, config->mounts.items[i].writable ? "rw" : "ro");
    if (r == 0)
        r = secret_table_write(&config->secrets, to);
    return r < 0 ? r : place_table_write(&config->places, to);
}

/* A limit of 0 is none. */
static uint32_t count_of(uint64_t value)
{
    return value ? (uint32_t)value : UINT32_MAX;
}

static uint64_t bytes_of(uint64_t mb)
{
    return mb ? mb << 20 : UINT64_MAX;
}

void config_network(const struct config *c, struct network_settings *ret)
{
    *ret = (struct network_settings){.max = (unsigned)c->network_max,
        .open = c->network_open,
        .closed = c->network_closed,
        .closed_names = c->network_closed_names,
        .allowed = c->network_allowed,
        .resolvers = c->network_resolvers,
        .upstream = c->network_upstream,
        .credentials = "",
        .upstream_filters = c->network_upstream_filters,
        .upstream_resolves = c->network_upstream_resolves,
        .box_max = {.connections = (uint32_t)c->maxima.network_connections,
            .connections_all = count_of(c->network_connections_all),
            .connections_s = count_of(c->network_connections_s),
            .lookups = count_of(c->network_lookups),
            .sent_bytes = c->maxima.network_mb << 20,
            .received_bytes = c->maxima.network_mb << 20,
            .bytes_s = bytes_of(c->network_mb_s)},
        .key_max = {.connections = count_of(c->network_key_connections),
            .connections_all = UINT32_MAX,
            .connections_s = count_of(c->network_key_connections_s),
            .lookups = count_of(c->network_key_lookups),
            .sent_bytes = UINT64_MAX,
            .received_bytes = UINT64_MAX,
            .bytes_s = bytes_of(c->network_key_mb_s)}};
}

void config_keys(const struct config *config, struct keys *ret, struct strv *problems)
{
    if (config->api_token[0])
        keys_add(ret, "api_token", "api-token", config->api_token, problems);
    if (config->auth_token[0])
        keys_add(ret, "auth_token", "auth-token", config->auth_token, problems);
    keys_add_list(ret, "api_keys", "api-key", config->api_keys, problems);
    if (config->keys_file[0])
        keys_add_file(ret, config->keys_file, problems);
}
