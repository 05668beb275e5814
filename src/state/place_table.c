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
#include <strings.h>

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
    WITH_COMMAND = KIND(PLACE_PLUGIN) | KIND(PLACE_APPTAINER),
    WITH_STAY = WITH_IMAGE | KIND(PLACE_SSH), /* the shell outlives a cut connection */
};

struct key;
typedef const char *set_value(struct place_row *row, const struct key *key, const char *value);
static set_value set_kind, set_text, set_number, set_limit, set_cpus, set_bool, set_not;

/* The keys of a section. The bit of a key in place_row.given is its index. */
static const struct key {
    const char *name;
    uint32_t kinds; /* bits of the kinds that may have it */
    set_value *set; /* returns NULL, or what is wrong with the value */
    size_t offset;  /* of the member that it sets */
    size_t size;    /* texts */
    const char *(*check)(const char *value);
    uint32_t min, max; /* numbers */
    const char *why;
} keys[] = {
#define MEMBER(member) .offset = offsetof(struct place_row, member)
#define TEXT(member, text_check)                                                               \
    .set = set_text, MEMBER(member), .size = sizeof(((struct place_row *)0)->member),          \
    .check = (text_check)
    {"kind", ALL_KINDS, .set = set_kind},
    {"keys", ALL_KINDS, TEXT(keys, check_text)},
    {"cwd", ALL_KINDS, TEXT(cwd, check_path)},
    {"persistent_shell", ALL_KINDS, .set = set_not, MEMBER(is_fresh)},
    {"isolated", ALL_KINDS, .set = set_not, MEMBER(is_open)},
    {"sudo", KIND(PLACE_LOCAL), .set = set_bool, MEMBER(may_gain)},
    {"host", KIND(PLACE_SSH), TEXT(host, check_word)},
    {"user", KIND(PLACE_SSH) | KIND(PLACE_DOCKER), TEXT(user, check_word)},
    {"port", KIND(PLACE_SSH), .set = set_number, MEMBER(port), .max = PORT_MAX,
        .why = "port is a number up to 65535"},
    {"key_file", KIND(PLACE_SSH), TEXT(key_file, check_path)},
    {"known_hosts", KIND(PLACE_SSH), TEXT(known_hosts, check_path)},
    {"ssh_config", KIND(PLACE_SSH), TEXT(ssh_config, check_path)},
    {"reconnect_s", WITH_STAY, .set = set_number, MEMBER(reconnect_s), .max = RECONNECT_MAX_S,
        .why = "reconnect_s is a number of seconds up to 3600; 0: a cut connection ends the "
               "session"},
    {"docker_socket", KIND(PLACE_DOCKER), TEXT(socket, check_path)},
    {"docker_runtime", KIND(PLACE_DOCKER), TEXT(runtime, check_image)},
    {"docker_volumes", KIND(PLACE_DOCKER), TEXT(volumes, check_volumes)},
    {"docker_forward_env", KIND(PLACE_DOCKER), TEXT(forward_env, check_variables)},
    {"container_idle_s", KIND(PLACE_DOCKER), .set = set_number, MEMBER(idle_s), .min = 1,
        .max = IDLE_MAX_S, .why = "container_idle_s is a number of seconds up to a week"},
    {"image", WITH_IMAGE, TEXT(image, check_image)},
    {"docker_image", WITH_IMAGE, TEXT(image, check_image)},
    {"network", WITH_IMAGE, TEXT(network, check_reach)},
    {"docker_network", WITH_IMAGE, TEXT(network, check_network)},
    {"container_persistent", WITH_IMAGE, .set = set_bool, MEMBER(keeps)},
    {"container_cpu", WITH_IMAGE, .set = set_cpus, MEMBER(limits.value[PLACE_CPUS])},
    {"container_memory", WITH_IMAGE, .set = set_limit, MEMBER(limits.value[PLACE_MEMORY]),
        .min = 16, .max = MB_MAX,
        .why = "container_memory is a number of MiB from 16 on; a container is never without a "
               "limit"},
    {"container_pids", WITH_IMAGE, .set = set_limit, MEMBER(limits.value[PLACE_PROCESSES]),
        .min = 8, .max = PROCESSES_MAX,
        .why = "container_pids is a number from 8 on; a container is never without a limit"},
    {"container_disk", KIND(PLACE_DOCKER) | KIND(PLACE_PLUGIN), .set = set_limit,
        MEMBER(limits.value[PLACE_DISK]), .min = 1, .max = MB_MAX,
        .why = "container_disk is a number of MiB"},
    {"command", WITH_COMMAND, TEXT(command, check_command)},
    {"scratch_dir", WITH_COMMAND, TEXT(scratch_dir, check_path)},
    {"open_s", WITH_COMMAND, .set = set_number, MEMBER(open_s), .min = 1, .max = OPEN_MAX_S,
        .why = "open_s is a number of seconds up to 1800"},
    {"env_file", KIND(PLACE_PLUGIN), TEXT(env_file, check_path)},
    {"lifetime_s", KIND(PLACE_PLUGIN), .set = set_number, MEMBER(lifetime_s), .min = 60,
        .max = LIFETIME_MAX_S, .why = "lifetime_s is a number of seconds from 60 to 86400"},
#undef TEXT
#undef MEMBER
};
enum { KEYS = sizeof(keys) / sizeof(keys[0]) };
_Static_assert(KEYS <= 64, "a bit of place_row.given for each key");

/* The index of a key; KEYS when there is none. */
static size_t find_key(const char *name)
{
    size_t i = 0;
    while (i < KEYS && !str_eq(keys[i].name, name))
        i++;
    return i;
}

static bool is_given(const struct place_row *row, const char *name)
{
    return row->given >> find_key(name) & 1;
}

static uint32_t *number_of(struct place_row *row, const struct key *key)
{
    return (uint32_t *)((char *)row + key->offset);
}

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
    return row;
}

static const char *set_kind(struct place_row *row, const struct key *key, const char *value)
{
    (void)key;
    for (uint32_t kind = PLACE_NATIVE + 1; kind < PLACE_KINDS; kind++) {
        if (str_eq(place_kind_name(kind), value)) {
            row->kind = kind;
            return NULL;
        }
    }
    return "kind is local, ssh, docker, apptainer or plugin";
}

static const char *set_number(struct place_row *row, const struct key *key, const char *value)
{
    uint32_t number;
    if (str_parse_u32(value, &number) < 0 || number < key->min || number > key->max)
        return key->why;
    *number_of(row, key) = number;
    return NULL;
}

static void note_limit(struct place_row *row, const struct key *key)
{
    row->limits.asked |= 1u << (number_of(row, key) - row->limits.value);
}

static const char *set_limit(struct place_row *row, const struct key *key, const char *value)
{
    const char *why = set_number(row, key, value);
    if (!why)
        note_limit(row, key);
    return why;
}

/* Like the key `cpus` of a request: a number that may have a fraction. */
static const char *set_cpus(struct place_row *row, const struct key *key, const char *value)
{
    char *end;
    double cpus = strtod(value, &end);
    if (end == value || *end || !(cpus >= 0.01 && cpus <= CPUS_MAX))
        return "container_cpu is a number of CPUs from 0.01 on";
    *number_of(row, key) = (uint32_t)(cpus * 1000 + 0.5);
    note_limit(row, key);
    return NULL;
}

static const char *set_bool(struct place_row *row, const struct key *key, const char *value)
{
    static const char *const words[2][4] = {
        {"no", "false", "off", "0"}, {"yes", "true", "on", "1"}};
    for (uint32_t truth = 0; truth < 2; truth++)
        for (size_t i = 0; i < 4; i++)
            if (strcasecmp(words[truth][i], value) == 0) {
                *number_of(row, key) = truth;
                return NULL;
            }
    return "this is yes or no";
}

/* Sets the member to the opposite. */
static const char *set_not(struct place_row *row, const struct key *key, const char *value)
{
    const char *why = set_bool(row, key, value);
    if (!why)
        *number_of(row, key) = !*number_of(row, key);
    return why;
}

static const char *set_text(struct place_row *row, const struct key *key, const char *value)
{
    if (strlen(value) >= key->size)
        return "the text is too long";
    const char *why = key->check(value);
    if (!why)
        (void)snprintf((char *)row + key->offset, key->size, "%s", value);
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
    size_t i = find_key(key);
    if (i == KEYS)
        return "there is no such line in a section of a backend; docs/backends.md lists them";
    row->given |= 1ull << i;
    return keys[i].set(row, &keys[i], value);
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

/* Names a key that only rows of another kind may have, or returns NULL. */
static const char *misplaced_in(const struct place_row *row)
{
    for (size_t i = 0; i < KEYS; i++)
        if (row->given >> i & 1 && !(keys[i].kinds & KIND(row->kind)))
            return keys[i].name;
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
    if (!is_given(
            row, "isolated")) /* a plug-in counts as isolated only if the settings say so */
        row->is_open = row->kind == PLACE_PLUGIN;
    if (!is_given(row, "sudo"))
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
    /* No connection can break: when the shell ends, the session ends. */
    if (row->kind == PLACE_LOCAL)
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

/* Writes a line if it has a value and the kind has such a key. */
static int write_line(
    const struct place_row *row, const char *name, const char *value, struct buf *to)
{
    const struct key *key = &keys[find_key(name)];
    return value[0] && key->kinds & KIND(row->kind) ? buf_printf(to, "%s = %s\n", name, value)
                                                    : 0;
}

static int write_number(
    const struct place_row *row, const char *name, double number, struct buf *to)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%.15g", number);
    return write_line(row, name, text, to);
}

static int write_limits(const struct place_row *row, struct buf *to)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < KEYS; i++) {
        bool is_cpus = keys[i].set == set_cpus;
        if (row->given >> i & 1 && (is_cpus || keys[i].set == set_limit)) {
            uint32_t value = *(const uint32_t *)((const char *)row + keys[i].offset);
            r = write_number(row, keys[i].name, is_cpus ? value / 1000.0 : value, to);
        }
    }
    return r;
}

static int write_row(const struct place_row *row, struct buf *to)
{
    int r = buf_printf(to, "[backend %s]\nkind = %s\nisolated = %s\n", row->name,
        place_kind_name(row->kind), row->is_open ? "no" : "yes");
    if (r == 0)
        r = write_line(row, "keys", row->keys, to);
    if (r == 0)
        r = write_line(row, "cwd", row->cwd, to);
    if (r == 0)
        r = write_line(row, "docker_network", row->network, to);
    if (r == 0)
        r = write_line(row, "container_persistent", row->keeps ? "yes" : "no", to);
    if (r == 0)
        r = write_number(row, "reconnect_s", row->reconnect_s, to);
    if (r == 0)
        r = write_number(row, "open_s", row->open_s, to);
    if (r == 0)
        r = write_number(row, "lifetime_s", row->lifetime_s, to);
    return r < 0 ? r : write_limits(row, to);
}

int place_table_write(const struct place_table *table, struct buf *to)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < table->count; i++)
        r = write_row(&table->rows[i], to);
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
