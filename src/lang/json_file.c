/* SPDX-License-Identifier: Apache-2.0 */

/* See json_file.h. jansson parses; this file knows the few shapes of runtime.json and
 * base.json. Only lang/runtime_file.c and lang/rootfs_build.c use it, on files of the operator.
 * Requests of strangers are parsed by json/read.c instead. */

#include "lang/json_file.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "lang/hostpath.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int json_file_parse(
    struct json_file *f, const char *path, const char *text, size_t len, struct err *err)
{
    json_error_t problem;

    *f = (struct json_file){.path = path, .err = err};
    f->root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &problem);
    if (f->root == NULL)
        return err_set(
            err, ERR_INVALID, EINVAL, "%s: line %d: %s", path, problem.line, problem.text);
    if (!json_is_object(f->root)) {
        json_file_done(f);
        return err_set(err, ERR_INVALID, EINVAL, "%s: must be a JSON object", path);
    }
    return 0;
}

void json_file_done(struct json_file *f)
{
    json_decref(f->root);
    f->root = NULL;
}

int json_file_problem(const struct json_file *f, const char *field, const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return err_field(f->err, field, "%s: %s: %s", f->path, field, text);
}

/* Joins "compile" and "argv" to "compile.argv". */
static const char *field_name(struct json_at at, const char *key, char out[96])
{
    (void)snprintf(out, 96, "%s%s%s", at.name, at.name[0] != '\0' ? "." : "", key);
    return out;
}

static int problem_at(struct json_at at, const char *key, const char *text)
{
    char field[96];

    return json_file_problem(at.file, field_name(at, key, field), "%s", text);
}

int json_at_keys(struct json_at at, const char *const *keys)
{
    const char *key;
    json_t *value;

    json_object_foreach(at.object, key, value)
    {
        size_t i = 0;

        while (keys[i] != NULL && strcmp(keys[i], key) != 0)
            i++;
        if (keys[i] == NULL)
            return problem_at(at, key, "unknown field");
    }
    return 0;
}

int json_at_string(struct json_at at, const char *key, bool required, char **ret)
{
    json_t *value = json_object_get(at.object, key);

    if (value == NULL)
        return required ? problem_at(at, key, "is missing") : 0;
    if (!json_is_string(value) || json_string_length(value) == 0)
        return problem_at(at, key, "must be a string that is not empty");
    free(*ret);
    *ret = xstrdup(json_string_value(value));
    return 0;
}

int json_at_strv(struct json_at at, const char *key, struct strv *ret)
{
    json_t *list = json_object_get(at.object, key);
    json_t *item;
    size_t i;

    if (list == NULL)
        return 0;
    if (!json_is_array(list))
        return problem_at(at, key, "must be a list of strings");
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item))
            return problem_at(at, key, "must be a list of strings");
        strv_add(ret, json_string_value(item));
    }
    return 0;
}

int json_at_map(struct json_at at, const char *key, struct strv *ret)
{
    json_t *map = json_object_get(at.object, key);
    const char *name;
    json_t *value;

    if (map == NULL)
        return 0;
    if (!json_is_object(map))
        return problem_at(at, key, "must be an object of strings");
    json_object_foreach(map, name, value)
    {
        if (!json_is_string(value))
            return problem_at(at, key, "must be an object of strings");
        strv_add_owned(ret, xasprintf("%s=%s", name, json_string_value(value)));
    }
    return 0;
}

int json_at_count(struct json_at at, const char *key, uint32_t max, uint32_t *ret)
{
    json_t *value = json_object_get(at.object, key);

    if (value == NULL)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > max)
        return problem_at(at, key, "must be a whole number within its range");
    *ret = (uint32_t)json_integer_value(value);
    return 0;
}

int json_at_limits(struct json_at at, const char *key, struct run_limits *ret)
{
    json_t *map = json_object_get(at.object, key);
    const char *name;
    json_t *value;

    if (map == NULL)
        return 0;
    if (!json_is_object(map))
        return problem_at(at, key, "must be an object of numbers");
    json_object_foreach(map, name, value)
    {
        const struct limit_info *info = NULL;

        for (size_t i = 0; i < limit_count && info == NULL; i++) {
            if (strcmp(limit_table[i].name, name) == 0)
                info = &limit_table[i];
        }
        if (info == NULL)
            return problem_at(at, key, "names a limit that does not exist");
        double number = json_is_number(value) ? json_number_value(value) * info->scale : -1;
        if (number < (double)info->min || number > (double)info->max || number != floor(number))
            return problem_at(at, key, "has a limit that is not a number within its range");
        *limit_member(ret, info) = (uint64_t)number;
    }
    return 0;
}

/* Expands {home} or {dir} at the beginning. `in_box` selects the home as the box sees it. */
static char *expand_place(const char *text, const struct runtime *rt, bool in_box)
{
    const char *value = NULL;
    size_t skip = 0;

    if (str_has_prefix(text, "{home}")) {
        skip = strlen("{home}");
        value = rt == NULL ? NULL : in_box ? rt->home_box : rt->home;
    } else if (str_has_prefix(text, "{dir}")) {
        skip = strlen("{dir}");
        value = rt == NULL ? NULL : rt->dir;
    } else {
        return hostpath_expand(text, rt ? rt->user_home : NULL);
    }
    return value == NULL ? NULL : xasprintf("%s%s", value, text + skip);
}

static int add_path(struct json_at at, const char *key, const struct runtime *rt, json_t *item,
    struct root_spec *root)
{
    static const char *const keys[] = {"host", "box", "optional", "copy", NULL};
    struct json_at place = {.file = at.file, .object = item, .name = key};
    cleanup_free char *host_text = NULL;
    cleanup_free char *box_text = NULL;
    int r;

    if (json_is_string(item)) {
        host_text = xstrdup(json_string_value(item));
    } else {
        if (!json_is_object(item))
            return problem_at(at, key, "must be a list of paths");
        if ((r = json_at_keys(place, keys)) < 0 ||
            (r = json_at_string(place, "host", true, &host_text)) < 0 ||
            (r = json_at_string(place, "box", false, &box_text)) < 0)
            return r;
    }
    if (box_text == NULL && str_has_prefix(host_text, "{home}"))
        box_text = xstrdup(host_text);
    cleanup_free char *host = expand_place(host_text, rt, false);
    cleanup_free char *box = box_text != NULL ? expand_place(box_text, rt, true) : NULL;
    bool optional = json_is_true(json_object_get(item, "optional"));
    if (host == NULL && optional)
        return 0;
    if (host == NULL || (box_text != NULL && box == NULL))
        return problem_at(at, key, "uses {home}, {dir} or ~ where there is none");
    if (host[0] != '/' || (box != NULL && box[0] != '/'))
        return problem_at(at, key, "must hold absolute paths");
    root->paths = xreallocarray(root->paths, root->path_count + 1, sizeof(*root->paths));
    root->paths[root->path_count++] = (struct root_path){
        .host = take_ptr(host),
        .box = take_ptr(box),
        .optional = optional,
        .copy = json_is_true(json_object_get(item, "copy")),
    };
    return 0;
}

int json_at_paths(
    struct json_at at, const char *key, const struct runtime *rt, struct root_spec *root)
{
    json_t *list = json_object_get(at.object, key);
    json_t *item;
    size_t i;

    if (list == NULL)
        return 0;
    if (!json_is_array(list))
        return problem_at(at, key, "must be a list of paths");
    json_array_foreach(list, i, item)
    {
        int r = add_path(at, key, rt, item, root);

        if (r < 0)
            return r;
    }
    return 0;
}

int json_at_object(struct json_at at, const char *key, char name_buf[96], struct json_at *ret)
{
    json_t *value = json_object_get(at.object, key);

    if (value != NULL && !json_is_object(value))
        return problem_at(at, key, "must be an object");
    *ret = (struct json_at){
        .file = at.file, .object = value, .name = field_name(at, key, name_buf)};
    return 0;
}
