/* SPDX-License-Identifier: Apache-2.0 */

/* See place_table.h. */

#include "state/place_table.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECONNECT_S = 60,
    RECONNECT_MAX_S = 3600,
    IDLE_S = 300,
    IDLE_MAX_S = 7 * 86400,
    PORT_MAX = 65535,
    CPUS_MAX = 1024,
    MB_MAX = 1 << 30,
    PROCESSES_MAX = 1 << 20,
    OPEN_S = 120, /* a vendor fetches an image */
    OPEN_MAX_S = 1800,
    LIFETIME_MAX_S = 86400,
    NOT_SAID = 2, /* is_open or may_gain was not set: the kind decides */
};
static const char IMAGE[] = "nikolaik/python-nodejs:python3.11-nodejs20";

/* ssh would take a word that begins with - for an option. */
static const char *check_word(const char *value)
{
    size_t len = strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789-_.:[]@");
    return len && value[0] != '-' && !value[len]
               ? NULL
               : "this is not a valid name: use letters, digits, and . - _ : after the first";
}

static const char *check_path(const char *value)
{
    if (value[0] != '/' || strpbrk(value, "\"'%$"))
        return "a path begins with / and has no quotes, % or $";
    return NULL;
}

static const char *check_text(const char *value)
{
    return value[0] ? NULL : "there is nothing behind the =";
}

/* The name of an image or of a runtime of the engine. */
static const char *check_image(const char *value)
{
    size_t len = strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789-_.:/@");
    return len && value[0] != '-' && !value[len] ? NULL : "this is not the name of an image";
}

/* Names of networks of the engine; `host` and `container:` would be no isolation. */
static const char *check_network(const char *value)
{
    if (str_eq(value, "host") || strchr(value, ':'))
        return "docker_network is none, bridge or the name of a network of the engine";
    return check_word(value);
}

static const char *check_reach(const char *value)
{
    return str_eq(value, "none") || str_eq(value, "full") ? NULL : "network is none or full";
}

/* Words with spaces between, the first of them a path. */
static const char *check_command(const char *value)
{
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at < ' ' || *at == '"' || *at == '\'' || *at == '$')
            return "command is a path and words with spaces between, without quotes and $";
    return value[0] == '/' ? NULL : "command begins with the path of a program";
}

/* Calls `check` for each item of a list with commas and spaces between. */
static const char *check_list(const char *value, const char *(*check)(const char *item))
{
    cleanup_free char *list = xstrdup(value);
    const char *why = NULL;
    for (char *at = list, *item; !why && (item = strsep(&at, ", "));)
        why = item[0] ? check(item) : NULL;
    return why;
}

/* Variables with Hermes' own keys and settings must not go into a container. */
static const char *check_variable(const char *name)
{
    static const char *const own[] = {
        "API_TOKEN", "AUTH_TOKEN", "CODE_RUNNER_API_KEYS", "DOCKER_SOCKET"};
    bool is_own = str_has_prefix(name, "HERMES_");
    size_t len =
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        is_own = is_own || str_eq(name, own[i]);
    if (is_own)
        return "docker_forward_env names a variable that is a setting of Hermes";
    return name[len] || (name[0] >= '0' && name[0] <= '9')
               ? "docker_forward_env has names of variables with commas between"
               : NULL;
}

static const char *check_variables(const char *value)
{
    return check_list(value, check_variable);
}

static const char *check_volume(const char *item)
{
    const char *target = strchr(item, ':');
    const char *rest = target ? strchr(target + 1, ':') : NULL;
    if (item[0] != '/' || !target || target[1] != '/' || strstr(item, "/../") ||
        (rest && !str_eq(rest, ":ro") && !str_eq(rest, ":rw")))
        return "docker_volumes has /SOURCE:/TARGET or /SOURCE:/TARGET:ro with commas between";
    return NULL;
}

static const char *check_volumes(const char *value)
{
    return check_list(value, check_volume);
}

#define KIND(kind) (1u << (kind))
enum {
    ALL_KINDS = (1 << PLACE_KINDS) - 1,
    WITH_IMAGE = KIND(PLACE_DOCKER) | KIND(PLACE_PLUGIN) | KIND(PLACE_APPTAINER),
};

/* Texts. */
static const struct {
    const char *key;
    size_t offset, size;
    uint32_t kinds; /* bits */
    const char *(*check)(const char *value);
} rows[] = {
#define TEXT(key, member, kinds, check)                                                        \
    {                                                                                          \
        key, offsetof(struct place_row, member), sizeof(((struct place_row *)0)->member),      \
            kinds, check                                                                       \
    }
    TEXT("keys", keys, ALL_KINDS, check_text),
    TEXT("cwd", cwd, ALL_KINDS, check_path),
    TEXT("host", host, KIND(PLACE_SSH), check_word),
    TEXT("user", user, KIND(PLACE_SSH) | KIND(PLACE_DOCKER), check_word),
    TEXT("key_file", key_file, KIND(PLACE_SSH), check_path),
    TEXT("known_hosts", known_hosts, KIND(PLACE_SSH), check_path),
    TEXT("ssh_config", ssh_config, KIND(PLACE_SSH), check_path),
    TEXT("docker_socket", socket, KIND(PLACE_DOCKER), check_path),
    TEXT("image", image, WITH_IMAGE, check_image),
    TEXT("docker_image", image, WITH_IMAGE, check_image),
    TEXT("docker_runtime", runtime, KIND(PLACE_DOCKER), check_image),
    TEXT("network", network, WITH_IMAGE, check_reach),
    TEXT("docker_network", network, WITH_IMAGE, check_network),
    TEXT("command", command, KIND(PLACE_PLUGIN) | KIND(PLACE_APPTAINER), check_command),
    TEXT("scratch_dir", scratch_dir, KIND(PLACE_PLUGIN) | KIND(PLACE_APPTAINER), check_path),
    TEXT("env_file", env_file, KIND(PLACE_PLUGIN), check_path),
    TEXT("docker_volumes", volumes, KIND(PLACE_DOCKER), check_volumes),
    TEXT("docker_forward_env", forward_env, KIND(PLACE_DOCKER), check_variables),
#undef TEXT
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Numbers. The member gets the number of the setting times `unit`. */
static const struct {
    const char *key;
    size_t offset;
    uint32_t min, max, unit;
    const char *why;
} numbers[] = {
#define NUMBER(key, member, min, max, unit, why)                                               \
    {                                                                                          \
        key, offsetof(struct place_row, member), min, max, unit, why                           \
    }
    NUMBER("port", port, 0, PORT_MAX, 1, "port is a number up to 65535"),
    NUMBER("reconnect_s", reconnect_s, 0, RECONNECT_MAX_S, 1,
        "reconnect_s is a number of seconds up to 3600; 0: a cut connection ends the session"),
    NUMBER("open_s", open_s, 1, OPEN_MAX_S, 1, "open_s is a number of seconds up to 1800"),
    NUMBER("lifetime_s", lifetime_s, 60, LIFETIME_MAX_S, 1,
        "lifetime_s is a number of seconds from 60 to 86400"),
    NUMBER("container_idle_s", idle_s, 1, IDLE_MAX_S, 1,
        "container_idle_s is a number of seconds up to a week"),
    NUMBER("container_memory", limits.value[PLACE_MEMORY], 16, MB_MAX, 1,
        "container_memory is a number of MiB from 16 on; a container is never without a limit"),
    NUMBER("container_pids", limits.value[PLACE_PROCESSES], 8, PROCESSES_MAX, 1,
        "container_pids is a number from 8 on; a container is never without a limit"),
    NUMBER("container_disk", limits.value[PLACE_DISK], 1, MB_MAX, 1,
        "container_disk is a number of MiB"),
#undef NUMBER
};
enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

/* The index of a row; the count when there is none. */
static uint32_t find(const struct place_table *table, const char *name)
{
    uint32_t i = 0;
    while (i < table->count && !str_eq(table->rows[i].name, name))
        i++;
    return i;
}

static struct place_row *find_or_add(struct place_table *table, const char *name)
{
    uint32_t i = find(table, name);
    if (i < table->count)
        return &table->rows[i];
    if (table->count == PLACES_MAX)
        return NULL;
    struct place_row *row = &table->rows[table->count++];
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    row->reconnect_s = RECONNECT_S;
    row->keeps = true;
    row->idle_s = IDLE_S;
    row->open_s = OPEN_S;
    row->lifetime_s = LIFETIME_MAX_S;
    row->is_open = NOT_SAID;
    row->may_gain = NOT_SAID;
    return row;
}

static const char *set_kind(struct place_row *row, const char *value)
{
    for (uint32_t kind = PLACE_NATIVE + 1; kind < PLACE_KINDS; kind++) {
        if (str_eq(place_kind_name(kind), value)) {
            row->kind = kind;
            return NULL;
        }
    }
    return "kind is local, ssh, docker, apptainer or plugin";
}

static const char *set_number(struct place_row *row, size_t i, const char *value)
{
    uint32_t number;
    uint32_t *member = (uint32_t *)((char *)row + numbers[i].offset);
    if (str_parse_u32(value, &number) < 0 || number < numbers[i].min || number > numbers[i].max)
        return numbers[i].why;
    *member = number * numbers[i].unit;
    for (uint32_t limit = 0; limit < PLACE_LIMITS; limit++)
        if (member == &row->limits.value[limit])
            row->limits.asked |= 1u << limit;
    return NULL;
}

/* Like the key `cpus` of a request: a number that may have a fraction. */
static const char *set_cpus(struct place_row *row, const char *value)
{
    char *end;
    double cpus = strtod(value, &end);
    if (end == value || *end || !(cpus >= 0.01 && cpus <= CPUS_MAX))
        return "container_cpu is a number of CPUs from 0.01 on";
    row->limits.value[PLACE_CPUS] = (uint32_t)(cpus * 1000 + 0.5);
    row->limits.asked |= 1u << PLACE_CPUS;
    return NULL;
}

static const char *set_bool(uint32_t *to, const char *value, bool is_inverse)
{
    static const char *const words[2][4] = {
        {"no", "false", "off", "0"}, {"yes", "true", "on", "1"}};
    for (uint32_t truth = 0; truth < 2; truth++)
        for (size_t i = 0; i < 4; i++)
            if (str_eq(words[truth][i], value)) {
                *to = is_inverse ? !truth : truth;
                return NULL;
            }
    return "this is yes or no";
}

static const char *set_text(struct place_row *row, size_t i, const char *value)
{
    if (strlen(value) >= rows[i].size)
        return "the text is too long";
    const char *why = rows[i].check(value);
    if (!why)
        (void)snprintf((char *)row + rows[i].offset, rows[i].size, "%s", value);
    return why;
}

const char *place_table_set(
    struct place_table *table, const char *name, const char *key, const char *value)
{
    size_t len =
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    if (!len || len > PLACE_NAME || name[len])
        return "the name of a backend has at most 32 letters, digits, - and _";
    if (str_eq(name, place_kind_name(PLACE_NATIVE)))
        return "native is the name of the boxes of Hermes";
    struct place_row *row = find_or_add(table, name);
    if (!row)
        return "there are more than 16 backends";
    if (str_eq(key, "kind"))
        return set_kind(row, value);
    if (str_eq(key, "container_cpu"))
        return set_cpus(row, value);
    if (str_eq(key, "container_persistent"))
        return set_bool(&row->keeps, value, false);
    if (str_eq(key, "persistent_shell"))
        return set_bool(&row->is_fresh, value, true);
    if (str_eq(key, "sudo"))
        return set_bool(&row->may_gain, value, false);
    if (str_eq(key, "isolated"))
        return set_bool(&row->is_open, value, true);
    for (size_t i = 0; i < NUMBERS; i++)
        if (str_eq(numbers[i].key, key))
            return set_number(row, i, value);
    for (size_t i = 0; i < ROWS; i++)
        if (str_eq(rows[i].key, key))
            return set_text(row, i, value);
    return "there is no such line in a section of a backend; docs/backends.md lists them";
}

const char *place_table_add_docker(struct place_table *table, const char *socket)
{
    const char *name = place_kind_name(PLACE_DOCKER);
    if (find(table, name) < table->count)
        return NULL;
    const char *why = place_table_set(table, name, "kind", name);
    if (!why)
        why = place_table_set(table, name, "keys", "*");
    return why ? why : place_table_set(table, name, "docker_socket", socket);
}

/* The key that sets a limit. */
static const char *key_of(uint32_t limit)
{
    const size_t offset = offsetof(struct place_row, limits.value) + limit * sizeof(uint32_t);
    for (size_t i = 0; i < NUMBERS; i++)
        if (numbers[i].offset == offset)
            return numbers[i].key;
    return "container_cpu";
}

/* Names a key that only rows of another kind may have, or returns NULL. */
static const char *misplaced_in(const struct place_row *row)
{
    for (size_t i = 0; i < ROWS; i++)
        if (((const char *)row + rows[i].offset)[0] && !(rows[i].kinds & KIND(row->kind)))
            return rows[i].key;
    if (row->port && row->kind != PLACE_SSH)
        return "port";
    if (row->may_gain != NOT_SAID && row->kind != PLACE_LOCAL)
        return "sudo";
    for (uint32_t limit = 0; limit < PLACE_LIMITS; limit++)
        if (row->limits.asked & ~place_may_enforce(row->kind) & (1u << limit))
            return key_of(limit);
    return NULL;
}

static void add_problem(struct strv *problems, const struct place_row *row, const char *why)
{
    strv_add_owned(problems, xasprintf("settings: [backend %s]: %s", row->name, why));
}

static void check_row(struct place_row *row, struct strv *problems)
{
    const char *misplaced = row->kind ? misplaced_in(row) : NULL;
    if (!row->kind)
        add_problem(problems, row, "kind is missing: local, ssh, docker, apptainer or plugin");
    if (!row->keys[0])
        add_problem(problems, row,
            "keys is missing: the names of the API keys that may use it, or * for every "
            "caller");
    if (misplaced) {
        cleanup_free char *why =
            xasprintf("%s is not for %s", misplaced, place_kind_name(row->kind));
        add_problem(problems, row, why);
    }
}

static void set_default(char *to, size_t size, const char *value)
{
    if (!to[0])
        (void)snprintf(to, size, "%s", value);
}

static void complete(struct place_row *row)
{
    if (row->is_open == NOT_SAID) /* a plug-in counts as isolated only if the settings say so */
        row->is_open = row->kind == PLACE_PLUGIN;
    if (row->may_gain == NOT_SAID)
        row->may_gain = row->kind == PLACE_LOCAL;
    if (row->kind == PLACE_APPTAINER) {
        cleanup_free char *image = xasprintf("docker://%s", IMAGE);
        set_default(row->image, sizeof(row->image), image);
        set_default(row->cwd, sizeof(row->cwd), "/");
    }
    if (row->kind == PLACE_PLUGIN || row->kind == PLACE_APPTAINER) {
        set_default(row->image, sizeof(row->image), IMAGE);
        set_default(row->network, sizeof(row->network), "full");
    }
    if (row->kind == PLACE_LOCAL) /* nothing can be cut: its end is the session's end */
        row->reconnect_s = 0;
    if (row->kind == PLACE_SSH)
        set_default(row->host, sizeof(row->host), row->name);
    if (row->kind == PLACE_DOCKER) {
        set_default(row->socket, sizeof(row->socket), "/var/run/docker.sock");
        set_default(row->image, sizeof(row->image), IMAGE);
        set_default(row->network, sizeof(row->network), "none");
        set_default(row->cwd, sizeof(row->cwd), "/workspace");
        row->is_open |= row->volumes[0] != '\0';
    }
    for (uint32_t limit = 0; limit < PLACE_LIMITS; limit++)
        if (!(row->limits.asked & (1u << limit)))
            row->limits.value[limit] = place_default_limit(row->kind, limit);
}

void place_table_check(struct place_table *table, struct strv *problems)
{
    for (uint32_t i = 0; i < table->count; i++) {
        check_row(&table->rows[i], problems);
        complete(&table->rows[i]);
    }
}

static int write_limits(const struct place_row *row, struct buf *to)
{
    int r = 0;
    if (row->limits.asked & (1u << PLACE_CPUS))
        r = buf_printf(to, "container_cpu = %.3f\n", row->limits.value[PLACE_CPUS] / 1000.0);
    for (size_t i = 0; r == 0 && i < NUMBERS; i++) {
        const uint32_t *member = (const uint32_t *)((const char *)row + numbers[i].offset);
        for (uint32_t limit = 0; r == 0 && limit < PLACE_LIMITS; limit++)
            if (member == &row->limits.value[limit] && (row->limits.asked & (1u << limit)))
                r = buf_printf(to, "%s = %u\n", numbers[i].key, *member);
    }
    return r;
}

int place_table_write(const struct place_table *table, struct buf *to)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < table->count; i++) {
        const struct place_row *row = &table->rows[i];
        r = buf_printf(to,
            "[backend %s]\nkind = %s\nkeys = %s\nreconnect_s = %u\nopen_s = %u\nlifetime_s = "
            "%u\nisolated = %s\ncontainer_persistent = %s\n",
            row->name, place_kind_name(row->kind), row->keys, row->reconnect_s, row->open_s,
            row->lifetime_s, row->is_open ? "no" : "yes", row->keeps ? "yes" : "no");
        if (r == 0 && row->cwd[0])
            r = buf_printf(to, "cwd = %s\n", row->cwd);
        if (r == 0 && row->network[0])
            r = buf_printf(to, "docker_network = %s\n", row->network);
        if (r == 0)
            r = write_limits(row, to);
    }
    return r;
}

bool place_row_is_for(const struct place_row *row, const char *key)
{
    return str_list_covers(row->keys, key);
}

int place_table_find(const struct place_table *table, const char *name, const char *key)
{
    uint32_t i = find(table, name);
    return i < table->count && place_row_is_for(&table->rows[i], key) ? (int)i : -1;
}
