/* SPDX-License-Identifier: Apache-2.0 */

/* See decode.h. One row per field of the request; a field without a row is refused. json/body.c
 * has the parts that other requests share. */

#include "run/decode.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "network/policy.h"
#include "proto/package.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_run_done(struct json_run *run)
{
    run_spec_done(&run->spec);
}

/* The state of one call, for the functions of the fields. */
struct decoding {
    struct json_run *run;
    const json_t *body;
    const struct runtime_registry *runtimes;
    const struct mount_table *mounts;
    struct err *err;
};

static int wrong_type(struct decoding *d, const char *field, const char *want)
{
    return err_field(d->err, field, "%s must be %s", field, want);
}

/* Gets a string without NUL. */
static int get_text(
    struct decoding *d, const char *field, const json_t *value, const char **ret)
{
    if (!json_is_string(value))
        return wrong_type(d, field, "a string");
    *ret = json_string_value(value);
    if (strlen(*ret) != json_string_length(value))
        return err_field(d->err, field, "%s contains a NUL character", field);
    return 0;
}

static int get_bool(struct decoding *d, const char *field, const json_t *value, bool *ret)
{
    if (!json_is_boolean(value))
        return wrong_type(d, field, "true or false");
    *ret = json_is_true(value);
    return 0;
}

/* Copies content in the encoding that `encoding` names: utf8 (also when NULL) or base64. */
static int get_content(struct decoding *d, const char *field, const json_t *value,
    const json_t *encoding, char **ret, size_t *ret_len)
{
    const char *name = "utf8";
    char encoding_field[96];
    (void)snprintf(encoding_field, sizeof(encoding_field), "%s encoding", field);
    if (!json_is_string(value))
        return wrong_type(d, field, "a string");
    if (encoding && get_text(d, encoding_field, encoding, &name) < 0)
        return -EINVAL;
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    if (str_eq(name, "utf8")) {
        char *copy = malloc(len + 1);
        if (!copy)
            return err_set(d->err, ERR_UNAVAILABLE, ENOMEM, "out of memory");
        memcpy(copy, text, len + 1);
        *ret = copy;
        *ret_len = len;
        return 0;
    }
    if (!str_eq(name, "base64"))
        return err_field(d->err, encoding_field, "%s must be utf8 or base64", encoding_field);
    int r = base64_decode(text, len, ret, ret_len);
    return r < 0 ? err_field(d->err, field, "%s is not valid base64", field) : 0;
}

static int too_long(struct decoding *d)
{
    return err_set(d->err, ERR_TOO_LARGE, E2BIG,
        "arguments and variables are too long for a program; give them as files or stdin");
}

/* A list of strings into *ret. */
static int get_list(
    struct decoding *d, const char *field, const json_t *value, size_t max, struct strv *ret)
{
    if (!json_is_array(value))
        return wrong_type(d, field, "a list of strings");
    if (json_array_size(value) > max)
        return err_field(d->err, field, "%s has more than %zu items", field, max);
    for (size_t i = 0; i < json_array_size(value); i++) {
        char name[96];
        const char *text = "";
        (void)snprintf(name, sizeof(name), "%s[%zu]", field, i);
        if (get_text(d, name, json_array_get(value, i), &text) < 0)
            return -EINVAL;
        if (json_string_length(json_array_get(value, i)) > RUN_WORD_MAX)
            return too_long(d);
        strv_add(ret, text);
    }
    return 0;
}

static int take_language(struct decoding *d, const char *field, const json_t *value)
{
    const char *name = "";
    if (get_text(d, field, value, &name) < 0)
        return -EINVAL;
    d->run->spec.runtime = runtime_find(d->runtimes, name);
    if (!d->run->spec.runtime)
        return err_field(
            d->err, field, "unknown language `%.64s`; GET /v1/runtimes lists them", name);
    return 0;
}

static int take_file(struct decoding *d, size_t index, const json_t *item)
{
    static const char *const known[] = {"name", "content", "encoding", "executable"};
    char field[64];
    const char *key;
    json_t *value;
    (void)snprintf(field, sizeof(field), "files[%zu]", index);
    if (!json_is_object(item))
        return wrong_type(d, field, "an object with name and content");
    json_object_foreach((json_t *)item, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            is_known = is_known || str_eq(key, known[i]);
        (void)snprintf(field, sizeof(field), "files[%zu].%.32s", index, key);
        if (!is_known)
            return err_field(d->err, field, "unknown field");
    }
    const json_t *name = json_object_get(item, "name");
    const json_t *executable = json_object_get(item, "executable");
    bool is_executable = false;
    (void)snprintf(field, sizeof(field), "files[%zu].name", index);
    if (!json_is_string(name))
        return wrong_type(d, field, "a string");
    const char *why = str_name_problem(json_string_value(name), json_string_length(name));
    if (why)
        return err_field(d->err, field, "%s", why);
    (void)snprintf(field, sizeof(field), "files[%zu].executable", index);
    if (executable && get_bool(d, field, executable, &is_executable) < 0)
        return -EINVAL;
    char *content = NULL;
    size_t size = 0;
    (void)snprintf(field, sizeof(field), "files[%zu].content", index);
    int r = get_content(d, field, json_object_get(item, "content"),
        json_object_get(item, "encoding"), &content, &size);
    if (r == 0)
        run_files_add(
            &d->run->spec.files, json_string_value(name), content, size, is_executable);
    return r;
}

static int take_files(struct decoding *d, const char *field, const json_t *value)
{
    if (!json_is_array(value))
        return wrong_type(d, field, "a list of objects with name and content");
    if (json_array_size(value) > PACKAGE_MAX_FILES)
        return err_field(d->err, field, "there are more than %d files", PACKAGE_MAX_FILES);
    for (size_t i = 0; i < json_array_size(value); i++) {
        int r = take_file(d, i, json_array_get(value, i));
        if (r < 0)
            return r;
    }
    return 0;
}

static int take_entry(struct decoding *d, const char *field, const json_t *value)
{
    if (!json_is_string(value))
        return wrong_type(d, field, "a string");
    const char *why = str_name_problem(json_string_value(value), json_string_length(value));
    if (why)
        return err_field(d->err, field, "%s", why);
    d->run->spec.entry = xstrdup(json_string_value(value));
    return 0;
}

/* `code` becomes the entry file. It needs `language` and `entry`, which are decoded before
 * it. */
static int take_code(struct decoding *d, const char *field, const json_t *value)
{
    struct run_spec *spec = &d->run->spec;
    char *content = NULL;
    size_t size = 0;
    const char *name = spec->entry ? spec->entry : spec->runtime->main_file;
    int r = get_content(d, field, value, NULL, &content, &size);
    if (r < 0)
        return r;
    if (!spec->entry)
        spec->entry = xstrdup(name);
    run_files_add(&spec->files, name, content, size, false);
    return 0;
}

static int take_args(struct decoding *d, const char *field, const json_t *value)
{
    return get_list(d, field, value, PACKAGE_MAX_ARGS, &d->run->spec.args);
}

static int take_compile_args(struct decoding *d, const char *field, const json_t *value)
{
    return get_list(d, field, value, PACKAGE_MAX_ARGS, &d->run->spec.compile_args);
}

static int take_collect(struct decoding *d, const char *field, const json_t *value)
{
    int r = get_list(d, field, value, PACKAGE_MAX_GLOBS, &d->run->spec.collect);
    for (size_t i = 0; r == 0 && i < d->run->spec.collect.count; i++) {
        size_t len = strlen(d->run->spec.collect.items[i]);
        if (len == 0 || len > STR_GLOB_MAX)
            return err_field(d->err, field, "a pattern has 1 to %d bytes", STR_GLOB_MAX);
    }
    return r;
}

static int take_env(struct decoding *d, const char *field, const json_t *value)
{
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return wrong_type(d, field, "an object of strings");
    if (json_object_size(value) > PACKAGE_MAX_ENV)
        return err_field(d->err, field, "there are more than %d variables", PACKAGE_MAX_ENV);
    json_object_foreach((json_t *)value, key, item)
    {
        char name[96];
        (void)snprintf(name, sizeof(name), "env.%.64s", key);
        if (!json_is_string(item))
            return wrong_type(d, name, "a string");
        const char *why =
            run_env_problem(key, json_string_value(item), json_string_length(item));
        if (why)
            return err_field(d->err, name, "%s", why);
        if (json_string_length(item) > RUN_WORD_MAX)
            return too_long(d);
        strv_add_owned(&d->run->spec.env, xasprintf("%s=%s", key, json_string_value(item)));
    }
    return 0;
}

static int take_stdin(struct decoding *d, const char *field, const json_t *value)
{
    return get_content(d, field, value, json_object_get(d->body, "stdin_encoding"),
        &d->run->spec.stdin_data, &d->run->spec.stdin_size);
}

static int take_stdin_encoding(struct decoding *d, const char *field, const json_t *value)
{
    const char *name = "";
    if (get_text(d, field, value, &name) < 0)
        return -EINVAL;
    if (!str_eq(name, "utf8") && !str_eq(name, "base64"))
        return err_field(d->err, field, "%s must be utf8 or base64", field);
    return 0;
}

static int take_limits(struct decoding *d, const char *field, const json_t *value)
{
    return limits_decode(value, "limits.", &d->run->spec.limits, d->err);
}

static int take_compile_limits(struct decoding *d, const char *field, const json_t *value)
{
    return limits_decode(value, "compile_limits.", &d->run->spec.compile_limits, d->err);
}

/* The index of the operator's directory of this name. */
static int find_mount(struct decoding *d, const char *name)
{
    for (size_t i = 0; d->mounts && i < d->mounts->count; i++) {
        if (str_eq(d->mounts->items[i].name, name))
            return (int)i;
    }
    return -ENOENT;
}

static int take_mount(struct decoding *d, size_t index, const json_t *item)
{
    const char *name = NULL;
    const char *path = NULL;
    const char *mode = "ro";
    char field[48];
    struct run_spec *spec = &d->run->spec;
    struct run_mount *mount = &spec->mounts[spec->mount_count];
    (void)snprintf(field, sizeof(field), "mounts[%zu]", index);
    if (json_unpack((json_t *)item, "{s:s, s:s, s?s !}", "name", &name, "path", &path, "mode",
            &mode) < 0)
        return wrong_type(d, field, "an object with name, path and perhaps mode");
    int source = find_mount(d, name);
    if (source < 0)
        return err_field(
            d->err, field, "the server has no directory named `%.64s` to mount", name);
    bool below = str_has_prefix(path, "/mnt/") || str_has_prefix(path, "/box/");
    if (!below || strlen(path) >= sizeof(mount->path) ||
        str_name_problem(path + 1, strlen(path + 1)))
        return err_field(d->err, field, "path must lie below /mnt or /box");
    if (!str_eq(mode, "ro") && !str_eq(mode, "rw"))
        return err_field(d->err, field, "mode must be ro or rw");
    if (str_eq(mode, "rw") && !d->mounts->items[source].writable)
        return err_field(d->err, field, "the directory `%.64s` is read-only", name);
    mount->source = (unsigned)source;
    mount->writable = str_eq(mode, "rw");
    memcpy(mount->path, path, strlen(path) + 1);
    spec->mount_count++;
    return 0;
}

static int take_mounts(struct decoding *d, const char *field, const json_t *value)
{
    const size_t max = sizeof(d->run->spec.mounts) / sizeof(d->run->spec.mounts[0]);
    if (!json_is_array(value))
        return wrong_type(d, field, "a list of objects");
    if (json_array_size(value) > max)
        return err_field(d->err, field, "there are more than %zu mounts", max);
    for (size_t i = 0; i < json_array_size(value); i++) {
        int r = take_mount(d, i, json_array_get(value, i));
        if (r < 0)
            return r;
    }
    return 0;
}

static int take_network(struct decoding *d, const char *field, const json_t *value)
{
    return network_policy_decode(value, field, &d->run->spec.network, d->err);
}

static int take_secrets(struct decoding *d, const char *field, const json_t *value)
{
    return get_list(d, field, value, NETWORK_MAX_SECRETS, &d->run->spec.secrets);
}

static int take_image(struct decoding *d, const char *field, const json_t *value)
{
    const char *name = "";
    if (get_text(d, field, value, &name) < 0)
        return -EINVAL;
    d->run->spec.wants_no_image = str_eq(name, d->run->spec.runtime->name);
    if (d->run->spec.wants_no_image)
        return 0;
    if (!d->run->spec.runtime->run.has_images)
        return err_field(
            d->err, field, "language `%s` does not support images", d->run->spec.runtime->name);
    d->run->spec.image_name = xstrdup(name);
    return 0;
}

static int take_install(struct decoding *d, const char *field, const json_t *value)
{
    return get_bool(d, field, value, &d->run->spec.installs);
}

static int take_output_encoding(struct decoding *d, const char *field, const json_t *value)
{
    int r = take_stdin_encoding(d, field, value);
    if (r == 0 && str_eq(json_string_value(value), "base64"))
        d->run->encoding = ENCODE_BASE64;
    return r;
}

static int take_async(struct decoding *d, const char *field, const json_t *value)
{
    return get_bool(d, field, value, &d->run->is_async);
}

static int take_keep_request(struct decoding *d, const char *field, const json_t *value)
{
    return get_bool(d, field, value, &d->run->keep_request);
}

static int take_stdin_open(struct decoding *d, const char *field, const json_t *value)
{
    int r = get_bool(d, field, value, &d->run->stdin_open);
    if (r == 0 && d->run->stdin_open && d->run->spec.stdin_size)
        r = err_field(d->err, field,
            "stdin and stdin_open exclude each other; send the first input with the rest");
    return r;
}

/* Fields are decoded in this order, whatever their order in the request. */
static const struct {
    const char *name;
    int (*take)(struct decoding *d, const char *field, const json_t *value);
} fields[] = {
    {"language", take_language},
    {"entry", take_entry},
    {"files", take_files},
    {"code", take_code},
    {"args", take_args},
    {"env", take_env},
    {"stdin_encoding", take_stdin_encoding},
    {"stdin", take_stdin},
    {"stdin_open", take_stdin_open},
    {"compile_args", take_compile_args},
    {"limits", take_limits},
    {"compile_limits", take_compile_limits},
    {"mounts", take_mounts},
    {"network", take_network},
    {"secrets", take_secrets},
    {"image", take_image},
    {"install", take_install},
    {"collect", take_collect},
    {"output_encoding", take_output_encoding},
    {"async", take_async},
    {"keep_request", take_keep_request},
};
enum { FIELD_COUNT = sizeof(fields) / sizeof(fields[0]) };

static int check_known(struct decoding *d)
{
    const char *names[FIELD_COUNT + 1];
    for (size_t i = 0; i < FIELD_COUNT; i++)
        names[i] = fields[i].name;
    names[FIELD_COUNT] = NULL;
    return json_known(d->body, names, NULL, d->err);
}

int json_run_decode(const json_t *body, const struct runtime_registry *runtimes,
    const struct mount_table *mounts, struct json_run *ret, struct err *err)
{
    struct decoding d = {
        .run = ret, .body = body, .runtimes = runtimes, .mounts = mounts, .err = err};
    *ret = (struct json_run){.encoding = ENCODE_UTF8};
    run_spec_init(&ret->spec);
    int r = check_known(&d);
    if (r < 0)
        return r;
    if (!json_object_get(body, "language"))
        return err_field(err, "language", "language is missing");
    for (size_t i = 0; r == 0 && i < FIELD_COUNT; i++) {
        const json_t *value = json_object_get(body, fields[i].name);
        if (value)
            r = fields[i].take(&d, fields[i].name, value);
    }
    return r;
}
