/* SPDX-License-Identifier: Apache-2.0 */

/* See decode.h. A program (solution, checker, interactor) is a part of the body of POST
 * /v1/runs and is decoded by run/decode.c. The other fields have one row each. */

#include "judge/decode.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_judge_done(struct json_judge *judge)
{
    judge_spec_done(&judge->spec);
}

struct decoding {
    struct json_judge *judge;
    const json_t *body;
    const struct runtime_registry *runtimes;
    const struct mount_table *mounts;
    struct err *err;
};

/* The fields of a run that a program may have. */
static const char *const program_fields[] = {"language", "code", "files", "entry", "env",
    "compile_args", "limits", "compile_limits", "mounts", "network", "secrets", "image", NULL};

static bool is_among(const char *name, const char *const *names)
{
    while (*names && !str_eq(*names, name))
        names++;
    return *names;
}

/* Joins "tests[3]" and "points" to "tests[3].points". */
static const char *below(char out[96], const char *where, const char *key)
{
    (void)snprintf(out, 96, "%.60s%s%.32s", where, where[0] ? "." : "", key);
    return out;
}

static int check_keys(
    struct decoding *d, const json_t *object, const char *where, const char *const *known)
{
    const char *key;
    json_t *value;
    char field[96];
    if (!json_is_object(object))
        return err_field(d->err, where, "%s must be an object", where);
    json_object_foreach((json_t *)object, key, value)
    {
        if (!is_among(key, known))
            return err_field(d->err, below(field, where, key), "unknown field `%.64s`", key);
    }
    return 0;
}

/* Decodes a program from the fields of `from` that belong to a program. */
static int get_program(
    struct decoding *d, const json_t *from, const char *where, struct run_spec *ret)
{
    json_t *part = json_object();
    struct json_run run;
    for (size_t i = 0; program_fields[i]; i++) {
        json_t *value = json_object_get(from, program_fields[i]);
        if (value)
            (void)json_object_set(part, program_fields[i], value);
    }
    int r = json_run_decode(part, d->runtimes, d->mounts, &run, d->err);
    json_decref(part);
    if (r == 0 && run.spec.files.count == 0)
        r = err_field(d->err, "code", "there is nothing to run: give code or files");
    if (r == 0) {
        run_spec_done(ret);
        *ret = run.spec;
        run_spec_init(&run.spec);
    } else if (where[0] && d->err->field[0]) {
        char field[sizeof(d->err->field)];
        (void)below(field, where, d->err->field);
        (void)snprintf(d->err->field, sizeof(d->err->field), "%s", field);
    }
    json_run_done(&run);
    return r;
}

static int get_number(struct decoding *d, const char *field, const json_t *value, double min,
    double max, double *ret)
{
    double number = json_number_value(value);
    if (!json_is_number(value))
        return err_field(d->err, field, "%s must be a number", field);
    if (!(number >= min && number <= max))
        return err_field(d->err, field, "%s must be from %g to %g", field, min, max);
    *ret = number;
    return 0;
}

static int get_bool(struct decoding *d, const char *field, const json_t *value, bool *ret)
{
    if (!json_is_boolean(value))
        return err_field(d->err, field, "%s must be true or false", field);
    *ret = json_is_true(value);
    return 0;
}

static int get_name(struct decoding *d, const char *field, const json_t *value, char **ret)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    if (!text || len == 0 || len > JUDGE_NAME_MAX)
        return err_field(
            d->err, field, "%s must be a string of 1 to %d bytes", field, JUDGE_NAME_MAX);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return err_field(d->err, field, "%s contains a control character", field);
    }
    free(*ret);
    *ret = xstrdup(text);
    return 0;
}

static int get_strings(
    struct decoding *d, const char *field, const json_t *value, struct strv *ret)
{
    if (!json_is_array(value) || json_array_size(value) > JUDGE_WORDS_MAX)
        return err_field(
            d->err, field, "%s must be a list of at most %d strings", field, JUDGE_WORDS_MAX);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const char *text = json_string_value(item);
        if (!text || strlen(text) != json_string_length(item))
            return err_field(d->err, field, "%s must be a list of strings without NUL", field);
        strv_add(ret, text);
    }
    return 0;
}

static int get_text(struct decoding *d, const char *where, const char *key,
    const json_t *object, struct judge_text *ret)
{
    char field[96];
    char encoding_key[64];
    (void)snprintf(encoding_key, sizeof(encoding_key), "%s_encoding", key);
    const json_t *value = json_object_get(object, key);
    const json_t *encoding = json_object_get(object, encoding_key);
    bool is_base64 = str_eq(json_string_value(encoding), "base64");
    if (encoding && !is_base64 && !str_eq(json_string_value(encoding), "utf8"))
        return err_field(
            d->err, below(field, where, encoding_key), "%s must be utf8 or base64", field);
    (void)below(field, where, key);
    if (!value)
        return 0;
    if (!json_is_string(value))
        return err_field(d->err, field, "%s must be a string", field);
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    if (is_base64)
        return base64_decode(text, len, &ret->data, &ret->size) < 0
                   ? err_field(d->err, field, "%s is not valid base64", field)
                   : 0;
    ret->data = malloc(len + 1);
    if (!ret->data)
        return err_set(d->err, ERR_UNAVAILABLE, ENOMEM, "out of memory");
    memcpy(ret->data, text, len + 1);
    ret->size = len;
    return 0;
}

static int take_test(struct decoding *d, size_t index, const json_t *item)
{
    static const char *const known[] = {"name", "stdin", "stdin_encoding", "expected",
        "expected_encoding", "args", "points", NULL};
    char where[32];
    char field[96];
    (void)snprintf(where, sizeof(where), "tests[%zu]", index);
    int r = check_keys(d, item, where, known);
    if (r < 0)
        return r;
    struct judge_test *test = judge_spec_add_test(&d->judge->spec);
    const json_t *name = json_object_get(item, "name");
    const json_t *args = json_object_get(item, "args");
    const json_t *points = json_object_get(item, "points");
    test->has_args = args;
    test->has_expected = json_object_get(item, "expected");
    if (name)
        r = get_name(d, below(field, where, "name"), name, &test->name);
    if (r == 0)
        r = get_text(d, where, "stdin", item, &test->input);
    if (r == 0)
        r = get_text(d, where, "expected", item, &test->expected);
    if (r == 0 && args)
        r = get_strings(d, below(field, where, "args"), args, &test->args);
    if (r == 0 && points)
        r = get_number(
            d, below(field, where, "points"), points, 0, JUDGE_POINTS_MAX, &test->points);
    return r;
}

static int take_tests(struct decoding *d, const char *field, const json_t *value)
{
    if (!json_is_array(value))
        return err_field(d->err, field, "%s must be a list of objects", field);
    if (json_array_size(value) > JUDGE_MAX_TESTS)
        return err_field(d->err, field, "there are more than %d tests", JUDGE_MAX_TESTS);
    int r = 0;
    for (size_t i = 0; r == 0 && i < json_array_size(value); i++)
        r = take_test(d, i, json_array_get(value, i));
    return r;
}

static int take_group(struct decoding *d, size_t index, const json_t *item)
{
    static const char *const known[] = {"name", "tests", "points", "depends", NULL};
    char where[32];
    char field[96];
    (void)snprintf(where, sizeof(where), "groups[%zu]", index);
    int r = check_keys(d, item, where, known);
    if (r < 0)
        return r;
    struct judge_group *group = judge_spec_add_group(&d->judge->spec);
    const json_t *points = json_object_get(item, "points");
    const json_t *depends = json_object_get(item, "depends");
    group->has_points = points;
    r = get_name(d, below(field, where, "name"), json_object_get(item, "name"), &group->name);
    if (r == 0)
        r = get_strings(
            d, below(field, where, "tests"), json_object_get(item, "tests"), &group->tests);
    if (r == 0 && points)
        r = get_number(
            d, below(field, where, "points"), points, 0, JUDGE_POINTS_MAX, &group->points);
    if (r == 0 && depends)
        r = get_strings(d, below(field, where, "depends"), depends, &group->depends);
    return r;
}

static int take_groups(struct decoding *d, const char *field, const json_t *value)
{
    if (!json_is_array(value))
        return err_field(d->err, field, "%s must be a list of objects", field);
    if (json_array_size(value) > JUDGE_MAX_GROUPS)
        return err_field(d->err, field, "there are more than %d groups", JUDGE_MAX_GROUPS);
    int r = 0;
    for (size_t i = 0; r == 0 && i < json_array_size(value); i++)
        r = take_group(d, i, json_array_get(value, i));
    return r;
}

/* Reads 1e-6 or {"absolute": 1e-6, "relative": 1e-9}. */
static int get_tolerance(struct decoding *d, const json_t *value)
{
    static const char *const known[] = {"absolute", "relative", NULL};
    struct compare_rule *rule = &d->judge->spec.rule;
    rule->kind = COMPARE_FLOAT;
    if (json_is_number(value)) {
        int r = get_number(d, "compare.float", value, 0, 1e300, &rule->absolute);
        rule->relative = rule->absolute;
        return r;
    }
    const json_t *absolute = json_object_get(value, "absolute");
    const json_t *relative = json_object_get(value, "relative");
    int r = check_keys(d, value, "compare.float", known);
    if (r == 0 && absolute)
        r = get_number(d, "compare.float.absolute", absolute, 0, 1e300, &rule->absolute);
    if (r == 0 && relative)
        r = get_number(d, "compare.float.relative", relative, 0, 1e300, &rule->relative);
    return r;
}

static int take_compare(struct decoding *d, const char *field, const json_t *value)
{
    struct judge_spec *spec = &d->judge->spec;
    for (int kind = 0; kind < COMPARE_KINDS; kind++) {
        if (kind != COMPARE_FLOAT && str_eq(json_string_value(value), compare_names[kind])) {
            spec->rule.kind = (enum compare_kind)kind;
            return 0;
        }
    }
    const json_t *tolerance = json_object_get(value, "float");
    const json_t *checker = json_object_get(value, "checker");
    if (json_object_size(value) == 1 && tolerance)
        return get_tolerance(d, tolerance);
    if (json_object_size(value) != 1 || !checker)
        return err_field(d->err, field,
            "%s must be \"exact\", \"trim\", \"tokens\", \"unordered\", {\"float\": 1e-6} or "
            "{\"checker\": {...}}",
            field);
    spec->has_checker = true;
    int r = check_keys(d, checker, "compare.checker", program_fields);
    return r < 0 ? r : get_program(d, checker, "compare.checker", &spec->checker);
}

static int take_interactor(struct decoding *d, const char *field, const json_t *value)
{
    d->judge->spec.has_interactor = true;
    int r = check_keys(d, value, field, program_fields);
    return r < 0 ? r : get_program(d, value, field, &d->judge->spec.interactor);
}

static int take_stop(struct decoding *d, const char *field, const json_t *value)
{
    struct judge_spec *spec = &d->judge->spec;
    if (str_eq(json_string_value(value), "group"))
        spec->stop = STOP_IN_GROUP;
    else if (json_is_boolean(value))
        spec->stop = json_is_true(value) ? STOP_AT_FIRST : STOP_NEVER;
    else
        return err_field(d->err, field, "%s must be true, false or \"group\"", field);
    return 0;
}

static int take_parallel(struct decoding *d, const char *field, const json_t *value)
{
    int64_t number;
    if (!json_whole(value, &number) || number < 1 || number > JUDGE_MAX_PARALLEL)
        return err_field(
            d->err, field, "%s must be a whole number from 1 to %d", field, JUDGE_MAX_PARALLEL);
    d->judge->spec.parallel = (unsigned)number;
    return 0;
}

static int take_transcript(struct decoding *d, const char *field, const json_t *value)
{
    return get_bool(d, field, value, &d->judge->spec.transcript);
}

static int take_output_encoding(struct decoding *d, const char *field, const json_t *value)
{
    bool is_base64 = str_eq(json_string_value(value), "base64");
    if (!is_base64 && !str_eq(json_string_value(value), "utf8"))
        return err_field(d->err, field, "%s must be utf8 or base64", field);
    d->judge->encoding = is_base64 ? ENCODE_BASE64 : ENCODE_UTF8;
    return 0;
}

static int take_async(struct decoding *d, const char *field, const json_t *value)
{
    return get_bool(d, field, value, &d->judge->is_async);
}

/* The fields besides the fields of the solution. */
static const struct {
    const char *name;
    int (*take)(struct decoding *d, const char *field, const json_t *value);
} fields[] = {
    {"tests", take_tests},
    {"groups", take_groups},
    {"compare", take_compare},
    {"interactor", take_interactor},
    {"stop_on_first_failure", take_stop},
    {"parallel", take_parallel},
    {"transcript", take_transcript},
    {"output_encoding", take_output_encoding},
    {"async", take_async},
};
enum { FIELD_COUNT = sizeof(fields) / sizeof(fields[0]) };

static int check_known(struct decoding *d)
{
    const char *names[FIELD_COUNT + 1];
    for (size_t i = 0; i < FIELD_COUNT; i++)
        names[i] = fields[i].name;
    names[FIELD_COUNT] = NULL;
    return json_known(d->body, names, program_fields, d->err);
}

int json_judge_decode(const json_t *body, const struct runtime_registry *runtimes,
    const struct mount_table *mounts, bool has_tests, struct json_judge *ret, struct err *err)
{
    struct decoding d = {
        .judge = ret, .body = body, .runtimes = runtimes, .mounts = mounts, .err = err};
    *ret = (struct json_judge){.encoding = ENCODE_UTF8};
    judge_spec_init(&ret->spec);
    int r = check_known(&d);
    if (r == 0)
        r = get_program(&d, body, "", &ret->spec.solution);
    for (size_t i = 0; r == 0 && i < FIELD_COUNT; i++) {
        const json_t *value = json_object_get(body, fields[i].name);
        if (value)
            r = fields[i].take(&d, fields[i].name, value);
    }
    if (r == 0 && has_tests)
        r = judge_spec_settle(&ret->spec, err);
    return r;
}
