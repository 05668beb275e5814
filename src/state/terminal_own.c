/* SPDX-License-Identifier: Apache-2.0 */

/* Adds to a caller's own file what depends on the caller: directory, home, variables
 * TERMINAL_*. The lines go into sections for a server of the caller's own, which checks them
 * again. */

#include "state/terminal_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* own_add_lines() sets these lines; they are not copied from the file. */
bool own_sets(const char *line)
{
    static const char *const lines[] = {
        "keys", "cwd", "container_persistent", "persistent_shell", "docker_volumes"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (str_eq(lines[i], line))
            return true;
    return false;
}

/* A path of the caller's: ~ is its home directory. NULL: there is none. */
static char *own_path(const struct reading *r, const char *value)
{
    const char *home = r->caller->home;
    if (value && value[0] == '/')
        return xstrdup(value);
    if (!value || !home || value[0] != '~' || (value[1] && value[1] != '/'))
        return NULL;
    return xasprintf("%s%s", home, value + 1);
}

/* Commands of this machine begin in the directory of the caller; on others, at home. */
static char *own_cwd(const struct reading *r, size_t place)
{
    const char *value = terminal_value(r, "cwd");
    if (terminal_places[place].bit == SSH)
        return value && value[0] == '/' ? xstrdup(value) : NULL;
    if (terminal_places[place].bit != LOCAL)
        return NULL;
    char *path = own_path(r, value);
    return path ? path : r->caller->cwd ? xstrdup(r->caller->cwd) : NULL;
}

/* The volumes of the file, and the directory of the caller if it is to be /workspace. */
static char *own_volumes(struct reading *r)
{
    const char *mount = terminal_value(r, "docker_mount_cwd_to_workspace");
    const char *listed = terminal_value(r, "docker_volumes");
    listed = listed ? listed : "";
    const char *taken = strstr(listed, ":/workspace");
    size_t end = strlen(":/workspace");
    if (!mount || !terminal_is_true(mount) ||
        (taken && (!taken[end] || strchr(":,", taken[end]))))
        return listed[0] ? xstrdup(listed) : NULL;
    const char *why = r->caller->cwd ? r->caller->no_mount : "the directory is not known";
    if (!why && strpbrk(r->caller->cwd, ":, \"'%$"))
        why = "its path has spaces, quotes, or one of : , % $";
    if (why)
        strv_add_owned(r->problems,
            xasprintf("terminal: docker_mount_cwd_to_workspace: %s cannot be /workspace: %s",
                r->caller->cwd ? r->caller->cwd : "?", why));
    return xasprintf("%s%s%s:/workspace", listed, listed[0] ? "," : "",
        r->caller->cwd ? r->caller->cwd : "");
}

enum { NAME_ROOM = 64 };
static const char prefix[] = "TERMINAL_";

/* The variable of a key: TERMINAL_SSH_HOST for ssh_host. */
static void name_variable(const char *key, char name[NAME_ROOM])
{
    (void)snprintf(name, NAME_ROOM, "%s%s", prefix, key);
    for (char *at = name; *at; at++)
        *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
}

static const char *variable_of(const struct reading *r, const char *key)
{
    char name[NAME_ROOM];
    name_variable(key, name);
    const char *value = r->caller->variable(name);
    return value && value[0] ? value : NULL;
}

/* Variables that say for one place what persistent_shell says for all. */
static const struct {
    unsigned bit;
    const char *key;
} persistent[] = {{LOCAL, "local_persistent"}, {SSH, "ssh_persistent"}};

/* Whether the shell of this place is kept between commands, as the caller says it; or NULL. */
static const char *own_persistent(const struct reading *r, unsigned bit)
{
    const char *value = NULL;
    for (size_t i = 0; i < sizeof(persistent) / sizeof(persistent[0]); i++)
        if (persistent[i].bit == bit)
            value = variable_of(r, persistent[i].key);
    return value ? value : terminal_value(r, "persistent_shell");
}

/* Adds the lines that depend on the caller. A place lives as long as the command. */
void own_add_lines(struct reading *r, struct place_table *table, size_t place)
{
    unsigned bit = terminal_places[place].bit;
    const char *keeps = terminal_value(r, "container_persistent");
    const char *shell = own_persistent(r, bit);
    const char *socket = r->caller->variable("DOCKER_SOCKET");
    cleanup_free char *cwd = own_cwd(r, place);
    cleanup_free char *volumes = bit == DOCKER ? own_volumes(r) : NULL;
    bool is_right = terminal_set_line(r, table, place, "keys", "keys", "*");
    if (is_right && cwd)
        is_right = terminal_set_line(r, table, place, "cwd", "cwd", cwd);
    if (is_right && volumes)
        is_right =
            terminal_set_line(r, table, place, "docker_volumes", "docker_volumes", volumes);
    if (is_right && bit == DOCKER && socket && socket[0])
        is_right = terminal_set_line(r, table, place, "DOCKER_SOCKET", "docker_socket", socket);
    if (is_right && shell && shell[0])
        is_right =
            terminal_set_line(r, table, place, "persistent_shell", "persistent_shell", shell);
    if (is_right && bit & CONTAINERS)
        (void)terminal_set_line(
            r, table, place, "container_persistent", "container_persistent", "no");
    if (keeps && terminal_is_true(keeps) && bit & CONTAINERS)
        strv_add(r->notes,
            "terminal.container_persistent is not used: the place ends with the command");
}

/* Checks a key whose value is a boolean. A command without a server supports some of them. */
void own_check(struct reading *r, const char *key, const char *value)
{
    bool is_had = strstr(key, "persistent") || str_eq(key, "docker_mount_cwd_to_workspace");
    if (!terminal_is_bool(value))
        strv_add_owned(r->problems, xasprintf("terminal: %s is true or false", key));
    else if (terminal_is_true(value) && !is_had)
        strv_add_owned(r->problems, xasprintf("terminal: %s: Hermes does not have this", key));
}

/* The places to set up: the named one, or all when none is named. */
unsigned own_choose(struct reading *r, unsigned wanted)
{
    const struct terminal_caller *caller = r->caller;
    const char *socket = caller->variable("DOCKER_SOCKET");
    const char *named = caller->backend ? caller->backend : r->backend;
    size_t place = named ? terminal_find_place(named) : PLACES;
    (void)snprintf(r->own->backend, sizeof(r->own->backend), "%s",
        place < PLACES ? terminal_places[place].name
        : named        ? named
                       : place_kind_name(PLACE_NATIVE));
    if (socket && socket[0])
        wanted |= DOCKER;
    if (caller->lists_all)
        return wanted;
    return place < PLACES ? terminal_places[place].bit : 0;
}

/* A list as the agent writes it into a variable: ["a", "b"], or words with commas between. */
static void take_flow(struct reading *r)
{
    while (terminal_next(r) && r->event.type != YAML_SEQUENCE_START_EVENT)
        if (r->event.type == YAML_SCALAR_EVENT || r->event.type == YAML_STREAM_END_EVENT)
            return;
    if (!r->is_bad)
        r->flow = terminal_take_list(r, "the variable");
}

static void take_variable(struct reading *r, const char *key, bool is_list, char **to)
{
    const char *value = variable_of(r, key);
    if (!value)
        return;
    for (const char *at = value; *at; at++)
        r->is_bad = r->is_bad || (unsigned char)*at < ' ' || *at == 0x7f;
    if (r->is_bad || strlen(value) > VALUE_MAX) {
        strv_add_owned(r->problems,
            xasprintf("the variable for terminal.%s is one line of at most %d bytes", key,
                VALUE_MAX));
        r->is_bad = true;
        return;
    }
    if (is_list && value[0] == '[')
        terminal_parse(r, value, strlen(value), take_flow);
    free(*to);
    *to = r->flow ? take_ptr(r->flow) : xstrdup(value);
}

/* Files of the caller. cwd may be that of another machine. */
static void take_home(struct reading *r)
{
    for (size_t i = 0; i < ROWS; i++) {
        char *path = terminal_rows[i].form == PATH && !str_eq(terminal_rows[i].key, "cwd")
                         ? own_path(r, r->values[i])
                         : NULL;
        if (path) {
            free(r->values[i]);
            r->values[i] = path;
        }
    }
}

static bool is_variable_of(const char *name, const char *key)
{
    char own[NAME_ROOM];
    name_variable(key, own);
    return str_eq(name, own);
}

/* Why the variable is not used, or NULL. */
static const char *unused_because(const char *name)
{
    bool is_used = is_variable_of(name, "env");
    for (size_t i = 0; i < sizeof(persistent) / sizeof(persistent[0]); i++)
        is_used = is_used || is_variable_of(name, persistent[i].key);
    for (size_t i = 0; i < ROWS && !is_used; i++) {
        if (i == KEYS_ROW || !is_variable_of(name, terminal_rows[i].key))
            continue;
        if (terminal_rows[i].form == UNUSED)
            return "has no meaning for Hermes";
        is_used = true;
    }
    return is_used ? NULL : "is not known";
}

/* Lists the variables TERMINAL_* that nothing here reads. */
static void note_variables(struct reading *r)
{
    for (char *const *at = r->caller->environment; at && *at; at++) {
        size_t len = strspn(*at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        if (!str_has_prefix(*at, prefix) || (*at)[len] != '=' || !(*at)[len + 1] || len > 128)
            continue;
        cleanup_free char *name = xstrndup(*at, len);
        const char *why = unused_because(name);
        if (why)
            strv_add_owned(r->notes, xasprintf("the variable %s %s", name, why));
    }
}

static void take_variables(struct reading *r)
{
    for (size_t i = 0; i < ROWS && !r->is_bad; i++)
        if (terminal_rows[i].form != UNUSED && i != KEYS_ROW)
            take_variable(
                r, terminal_rows[i].key, terminal_rows[i].form == LIST, &r->values[i]);
    if (!r->is_bad)
        take_variable(r, "env", false, &r->backend);
    for (size_t i = 0; i < sizeof(persistent) / sizeof(persistent[0]); i++) {
        const char *value = variable_of(r, persistent[i].key);
        if (value)
            own_check(r, persistent[i].key, value);
    }
    note_variables(r);
}

void terminal_config_read_own(const char *text, size_t len,
    const struct terminal_caller *caller, struct terminal_own *ret, struct strv *problems,
    struct strv *notes)
{
    CLEANUP(terminal_reading_done)
    struct reading r = {.problems = problems, .notes = notes, .caller = caller, .own = ret};
    struct place_table *table = xcalloc(1, sizeof(*table));
    buf_init(&ret->sections, TERMINAL_CONFIG_MAX);
    if (text)
        terminal_parse(&r, text, len, terminal_take_document);
    if (!r.is_bad)
        take_variables(&r);
    take_home(&r);
    if (!r.is_bad)
        terminal_add_places(&r, table);
    const char *shell = terminal_value(&r, "persistent_shell");
    ret->wants_fresh = shell && shell[0] && !terminal_is_true(shell);
    const char *forward = terminal_value(&r, "docker_forward_env");
    ret->forward_env = xstrdup(forward ? forward : "");
    free(table);
}

void terminal_own_done(struct terminal_own *own)
{
    buf_done(&own->sections);
    free(own->forward_env);
}
