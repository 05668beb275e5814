/* SPDX-License-Identifier: Apache-2.0 */

/* See terminal_config.h. libyaml's events are taken one by one: nothing is built that a hostile
 * file could make large. Aliases, tags and a second document are refused. */

#include "state/terminal_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct terminal_place terminal_places[] = {
    {"local", "local", LOCAL},
    {"ssh", "ssh", SSH},
    {"docker", "docker", DOCKER},
    {"singularity", "apptainer", APPTAINER},
    {"modal", "plugin", MODAL},
    {"daytona", "plugin", DAYTONA},
};
_Static_assert(sizeof(terminal_places) / sizeof(terminal_places[0]) == PLACES, "all places");

const struct terminal_row terminal_rows[] = {
    {"cwd", PATH, LOCAL | SSH, "cwd", false},
    {"hermes_keys", LIST, EVERY, "keys", false},
    {"ssh_host", TEXT, SSH, "host", true},
    {"ssh_user", TEXT, SSH, "user", false},
    {"ssh_port", TEXT, SSH, "port", false},
    {"ssh_key", PATH, SSH, "key_file", false},
    {"ssh_known_hosts", PATH, SSH, "known_hosts", false},
    {"container_cpu", LIMIT, CONTAINERS, "container_cpu", false},
    {"container_memory", LIMIT, CONTAINERS, "container_memory", false},
    {"container_disk", LIMIT, DOCKER | DAYTONA, "container_disk", false},
    {"container_persistent", TEXT, CONTAINERS, "container_persistent", false},
    {"lifetime_seconds", LIMIT, DOCKER, "container_idle_s", false},
    {"docker_image", TEXT, DOCKER, "docker_image", true},
    {"docker_network", NETWORK, DOCKER, "docker_network", false},
    {"docker_volumes", LIST, DOCKER, "docker_volumes", false},
    {"docker_forward_env", LIST, DOCKER, "docker_forward_env", false},
    {"singularity_image", TEXT, APPTAINER, "image", true},
    {"modal_image", TEXT, MODAL, "image", true},
    {"modal_command", TEXT, MODAL, "command", true},
    {"modal_env_file", PATH, MODAL, "env_file", false},
    {"daytona_image", TEXT, DAYTONA, "image", true},
    {"daytona_command", TEXT, DAYTONA, "command", true},
    {"daytona_env_file", PATH, DAYTONA, "env_file", false},
    {"docker_mount_cwd_to_workspace", NOT_TRUE, 0, NULL, false},
    {"docker_run_as_host_user", NOT_TRUE, 0, NULL, false},
    {"docker_snap_compat", NOT_TRUE, 0, NULL, false},
    {"local_sudo", TEXT, LOCAL, "sudo", false},
    {"persistent_shell", SHELL, EVERY, "persistent_shell", false},
    {"auto_source_bashrc", UNUSED, 0, NULL, false},
    {"degraded_mode", UNUSED, 0, NULL, false},
    {"docker_env", UNUSED, 0, NULL, false},
    {"docker_extra_args", UNUSED, 0, NULL, false},
    {"docker_orphan_reaper", UNUSED, 0, NULL, false},
    {"docker_persist_across_processes", UNUSED, 0, NULL, false},
    {"docker_shared_container_key", UNUSED, 0, NULL, false},
    {"docker_shm_size", UNUSED, 0, NULL, false},
    {"env_passthrough", UNUSED, 0, NULL, false},
    {"home_mode", UNUSED, 0, NULL, false},
    {"modal_mode", UNUSED, 0, NULL, false},
    {"shell_init_files", UNUSED, 0, NULL, false},
    {"sudo_password", UNUSED, 0, NULL, false},
    {"temp_dir", UNUSED, 0, NULL, false},
    {"timeout", UNUSED, 0, NULL, false},
};
_Static_assert(sizeof(terminal_rows) / sizeof(terminal_rows[0]) == ROWS, "all keys");

__attribute__((format(printf, 2, 3))) static void complain(
    struct reading *r, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (char *at = text; *at; at++)
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at;
    strv_add_owned(
        r->problems, xasprintf("terminal: line %zu: %s", r->parser.mark.line + 1, text));
    r->is_bad = true;
}

/* The next event; false at the end, and when something is wrong. */
bool terminal_next(struct reading *r)
{
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = false;
    if (r->is_bad)
        return false;
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        complain(
            r, "this is not YAML: %s", r->parser.problem ? r->parser.problem : "no memory");
        return false;
    }
    r->has_event = true;
    yaml_event_type_t type = r->event.type;
    bool opens = type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
    bool closes = type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT;
    r->depth += opens;
    r->depth -= closes;
    if (type == YAML_ALIAS_EVENT)
        complain(r, "aliases are not used here; write the value again");
    else if (r->depth > DEPTH_MAX)
        complain(r, "it is nested deeper than %d levels", DEPTH_MAX);
    else if (++r->events > EVENTS_MAX)
        complain(r, "it has more than %d values", EVENTS_MAX);
    return !r->is_bad;
}

static bool is_scalar(const struct reading *r)
{
    return r->event.type == YAML_SCALAR_EVENT;
}

/* The scalar that has come, or NULL when it is too long or has a NUL. */
static char *text_of(struct reading *r)
{
    const char *text = (const char *)r->event.data.scalar.value;
    size_t len = r->event.data.scalar.length;
    if (len > VALUE_MAX || strlen(text) != len || text[strcspn(text, "\r\n")]) {
        complain(r, "a value is one line of at most %d bytes", VALUE_MAX);
        return NULL;
    }
    return xstrndup(text, len);
}

/* Whether the scalar that has come is no value: `key:`, `key: null`, and `key: ~` where that is
 * not the home directory. */
static bool is_null(const struct reading *r, bool may_be_home)
{
    const char *text = (const char *)r->event.data.scalar.value;
    return is_scalar(r) && r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!text[0] || strcasecmp(text, "null") == 0 || (!may_be_home && str_eq(text, "~")));
}

/* Skips the value that has begun, with all that is in it. */
static void skip(struct reading *r)
{
    unsigned outer = r->depth;
    if (is_scalar(r))
        return;
    while (terminal_next(r) && r->depth >= outer)
        ;
}

/* A list of scalars, joined with commas. */
char *terminal_take_list(struct reading *r, const char *key)
{
    char *all = NULL;
    if (r->event.type != YAML_SEQUENCE_START_EVENT) {
        complain(r, "%s is a list", key);
        return NULL;
    }
    while (terminal_next(r) && is_scalar(r)) {
        cleanup_free char *item = text_of(r);
        if (item && strchr(item, ',')) {
            complain(r, "an item of %s has no comma", key);
        } else if (item && (all ? strlen(all) : 0) + strlen(item) < VALUE_MAX) {
            char *more = xasprintf("%s%s%s", all ? all : "", all ? "," : "", item);
            free(all);
            all = more;
        }
    }
    if (!r->is_bad && r->event.type != YAML_SEQUENCE_END_EVENT)
        complain(r, "%s is a list of texts", key);
    return all ? all : xstrdup("");
}

static void take_value(struct reading *r, const char *key)
{
    size_t i = 0;
    while (i < ROWS && !str_eq(terminal_rows[i].key, key))
        i++;
    bool is_backend = str_eq(key, "backend");
    if (!is_backend && i == ROWS) {
        strv_add_owned(r->notes, xasprintf("terminal.%.64s is not known", key));
        skip(r);
        return;
    }
    char **value = is_backend ? &r->backend : &r->values[i];
    if (*value) {
        complain(r, "%s is there twice", key);
    } else if (!is_backend && terminal_rows[i].form == UNUSED) {
        strv_add_owned(r->notes, xasprintf("terminal.%s has no meaning for Hermes", key));
        *value = xstrdup("");
        skip(r);
    } else if (is_null(r, str_eq(key, "cwd"))) {
        *value = is_backend ? NULL : xstrdup("");
    } else if (!is_backend && terminal_rows[i].form == LIST) {
        *value = terminal_take_list(r, key);
    } else if (!is_scalar(r)) {
        complain(r, "%s is one value", key);
    } else {
        *value = text_of(r);
    }
}

static void take_section(struct reading *r)
{
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        complain(r, "`terminal` has keys and values");
        return;
    }
    unsigned inner = r->depth;
    while (terminal_next(r) && r->depth >= inner) {
        if (!is_scalar(r)) {
            complain(r, "a key is a word");
            return;
        }
        cleanup_free char *key = text_of(r);
        if (key && terminal_next(r))
            take_value(r, key);
    }
}

void terminal_take_document(struct reading *r)
{
    bool has_section = false;
    while (terminal_next(r) && r->event.type != YAML_MAPPING_START_EVENT) {
        if (is_scalar(r) || r->event.type == YAML_SEQUENCE_START_EVENT ||
            r->event.type == YAML_STREAM_END_EVENT) {
            complain(r, "the file has keys and values, one of them `terminal`");
            return;
        }
    }
    while (terminal_next(r) && r->depth >= 1) {
        if (!is_scalar(r)) {
            complain(r, "a key is a word");
            return;
        }
        bool is_ours = str_eq((const char *)r->event.data.scalar.value, "terminal");
        if (is_ours && has_section) {
            complain(r, "terminal is there twice");
        } else if (terminal_next(r)) {
            has_section = has_section || is_ours;
            is_ours ? take_section(r) : skip(r);
        }
    }
    if (!r->is_bad && terminal_next(r) && terminal_next(r) &&
        r->event.type != YAML_STREAM_END_EVENT)
        complain(r, "there is more than one document");
}

bool terminal_is_true(const char *value)
{
    return strcasecmp(value, "true") == 0 || strcasecmp(value, "yes") == 0 ||
           strcasecmp(value, "on") == 0 || str_eq(value, "1");
}

bool terminal_is_bool(const char *value)
{
    return terminal_is_true(value) || strcasecmp(value, "false") == 0 ||
           strcasecmp(value, "no") == 0 || strcasecmp(value, "off") == 0 || str_eq(value, "0");
}

/* The value as a line of a section has it; NULL: there is no such line. */
static const char *line_of(struct reading *r, size_t i)
{
    const char *value = r->values[i];
    if (!value || !value[0])
        return NULL;
    if (terminal_rows[i].form == PATH && value[0] != '/')
        return NULL;
    if (terminal_rows[i].form == LIMIT && str_eq(value, "0"))
        return NULL;
    if (terminal_rows[i].form == NETWORK)
        return terminal_is_true(value) ? "bridge" : terminal_is_bool(value) ? "none" : value;
    return value;
}

const char *terminal_value(const struct reading *r, const char *key)
{
    for (size_t i = 0; i < ROWS; i++)
        if (str_eq(terminal_rows[i].key, key))
            return r->values[i];
    return NULL;
}

/* Sets one line of the place's section. `key` is its name for messages. */
bool terminal_set_line(struct reading *r, struct place_table *table, size_t place,
    const char *key, const char *line, const char *value)
{
    const char *why = place_table_set(table, terminal_places[place].name, line, value);
    if (!why && r->own && buf_printf(&r->own->sections, "%s = %s\n", line, value) < 0)
        why = "the file is too long";
    if (why)
        strv_add_owned(r->problems, xasprintf("terminal: %s: %s", key, why));
    return !why;
}

static void add_place(struct reading *r, struct place_table *table, size_t place)
{
    const char *name = terminal_places[place].name;
    if (r->own && buf_printf(&r->own->sections, "[backend %s]\n", name) < 0)
        return;
    bool is_right =
        terminal_set_line(r, table, place, name, "kind", terminal_places[place].kind);
    /* A sandbox at the vendor. The plug-in is refused unless it says so, too. */
    if (is_right && terminal_places[place].bit & (MODAL | DAYTONA))
        is_right = terminal_set_line(r, table, place, name, "isolated", "yes");
    for (size_t i = 0; is_right && i < ROWS; i++) {
        const char *value =
            terminal_rows[i].places & terminal_places[place].bit ? line_of(r, i) : NULL;
        if (value && !(r->own && own_sets(terminal_rows[i].line)))
            is_right = terminal_set_line(
                r, table, place, terminal_rows[i].key, terminal_rows[i].line, value);
    }
    if (r->own)
        own_add_lines(r, table, place);
    else if (!r->values[KEYS_ROW] || !r->values[KEYS_ROW][0])
        strv_add_owned(r->problems,
            xasprintf("terminal: hermes_keys is missing: a list of the API keys that may use "
                      "the backend %s, or [\"*\"]",
                name));
}

static void check_values(struct reading *r)
{
    for (size_t i = 0; i < ROWS; i++) {
        const char *value = r->values[i];
        if (!value || !value[0])
            continue;
        if (r->own && (terminal_rows[i].form == NOT_TRUE || terminal_rows[i].form == SHELL)) {
            own_check(r, terminal_rows[i].key, value);
            continue;
        }
        if (terminal_rows[i].form == NOT_TRUE &&
            (!terminal_is_bool(value) || terminal_is_true(value)))
            strv_add_owned(r->problems,
                xasprintf(
                    "terminal: %s: a server cannot use the directory or the user of its caller",
                    terminal_rows[i].key));
        if (terminal_rows[i].form == PATH && value[0] != '/' && !str_eq(value, ".") &&
            !(r->own && value[0] == '~'))
            strv_add_owned(r->notes, xasprintf("terminal.%s is not used: it is not an "
                                               "absolute path",
                                         terminal_rows[i].key));
    }
}

/* Keys without which a place cannot be reached. */
static void check_needed(struct reading *r, unsigned wanted)
{
    static const struct {
        unsigned place;
        const char *key, *what;
    } needed[] = {{SSH, "ssh_host", "the name or address of the machine"},
        {MODAL, "modal_command", "the adapter for Modal"},
        {DAYTONA, "daytona_command", "the adapter for Daytona"}};
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        const char *value = terminal_value(r, needed[i].key);
        if (wanted & needed[i].place && !(value && value[0]))
            strv_add_owned(r->problems,
                xasprintf("terminal: %s is missing: %s", needed[i].key, needed[i].what));
    }
}

/* PLACES: there is none of this name. */
size_t terminal_find_place(const char *name)
{
    size_t place = 0;
    while (place < PLACES && !str_eq(terminal_places[place].name, name) &&
           !str_eq(terminal_places[place].kind, name))
        place++;
    return str_eq(name, "plugin") ? PLACES : place;
}

void terminal_add_places(struct reading *r, struct place_table *table)
{
    unsigned wanted = 0;
    for (size_t i = 0; i < ROWS; i++)
        if (terminal_rows[i].names_place && line_of(r, i))
            wanted |= terminal_rows[i].places;
    if (r->backend) {
        size_t place = terminal_find_place(r->backend);
        if (place == PLACES)
            strv_add_owned(r->problems,
                xasprintf("terminal: backend is local, ssh, docker, singularity, modal or "
                          "daytona, not `%.32s`",
                    r->backend));
        else
            wanted |= terminal_places[place].bit;
    }
    if (r->own)
        wanted = own_choose(r, wanted);
    check_values(r);
    check_needed(r, wanted);
    for (size_t place = 0; place < PLACES; place++)
        if (wanted & terminal_places[place].bit)
            add_place(r, table, place);
}

/* Parses `text` with `take`. */
void terminal_parse(
    struct reading *r, const char *text, size_t len, void (*take)(struct reading *r))
{
    if (len > TERMINAL_CONFIG_MAX || !yaml_parser_initialize(&r->parser)) {
        strv_add(r->problems, "terminal: the file has more than 256 KiB");
        r->is_bad = true;
        return;
    }
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, len);
    r->events = r->depth = 0;
    take(r);
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = false;
    yaml_parser_delete(&r->parser);
}

void terminal_reading_done(struct reading *r)
{
    for (size_t i = 0; i < ROWS; i++)
        free(r->values[i]);
    free(r->backend);
    free(r->flow);
}

void terminal_config_read(const char *text, size_t len, struct place_table *table,
    struct strv *problems, struct strv *notes)
{
    CLEANUP(terminal_reading_done) struct reading r = {.problems = problems, .notes = notes};
    terminal_parse(&r, text, len, terminal_take_document);
    if (!r.is_bad)
        terminal_add_places(&r, table);
}
