/* SPDX-License-Identifier: Apache-2.0 */

/* Checks the arguments of a tool against its schema. The schemas are ours and use few words:
 * type, properties, required, additionalProperties, enum, minimum, maximum, minLength,
 * maxLength, items. The text says which argument is wrong and what would be right. */

#include "mcp/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "json/body.h"

static bool is_type(const json_t *value, const char *type)
{
    int64_t whole;
    return !type || (str_eq(type, "string") && json_is_string(value)) ||
           (str_eq(type, "integer") && json_whole(value, &whole)) ||
           (str_eq(type, "number") && json_is_number(value)) ||
           (str_eq(type, "boolean") && json_is_boolean(value)) ||
           (str_eq(type, "object") && json_is_object(value)) ||
           (str_eq(type, "array") && json_is_array(value));
}

static bool is_listed(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_equal(json_array_get(list, i), value))
            return true;
    }
    return !list;
}

static char *check_value(const char *name, const json_t *schema, const json_t *value)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    const json_t *minimum = json_object_get(schema, "minimum");
    const json_t *maximum = json_object_get(schema, "maximum");
    const json_t *longest = json_object_get(schema, "maxLength");
    const json_t *shortest = json_object_get(schema, "minLength");
    const json_t *choices = json_object_get(schema, "enum");
    const json_t *items = json_object_get(schema, "items");
    if (!is_type(value, type))
        return xasprintf("%s must be of type %s", name, type);
    if (!is_listed(choices, value)) {
        cleanup_free char *text = json_dumps(choices, JSON_COMPACT);
        return xasprintf("%s must be one of %s", name, text ? text : "[]");
    }
    double number = json_number_value(value);
    if ((minimum && number < json_number_value(minimum)) ||
        (maximum && number > json_number_value(maximum)))
        return xasprintf("%s is out of range", name);
    size_t len = json_string_length(value);
    if (longest && len > (size_t)json_integer_value(longest))
        return xasprintf(
            "%s is longer than %lld bytes", name, (long long)json_integer_value(longest));
    if (shortest && len < (size_t)json_integer_value(shortest))
        return xasprintf("%s is too short", name);
    for (size_t i = 0; items && i < json_array_size(value); i++) {
        char *problem = check_value(name, items, json_array_get(value, i));
        if (problem)
            return problem;
    }
    return NULL;
}

char *mcp_schema_problem(const json_t *schema, const json_t *value)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const char *name;
    json_t *item;
    if (!json_is_false(json_object_get(schema, "additionalProperties")))
        return NULL;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *needed = json_string_value(json_array_get(required, i));
        if (!json_object_get(value, needed))
            return xasprintf("%s is missing", needed);
    }
    /* The header of jansson takes no const object for iteration. */
    json_object_foreach((json_t *)value, name, item)
    {
        const json_t *property = json_object_get(properties, name);
        char *problem = property ? check_value(name, property, item)
                                 : xasprintf("there is no argument %.64s", name);
        if (problem)
            return problem;
    }
    return NULL;
}
