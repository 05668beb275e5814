/* SPDX-License-Identifier: Apache-2.0 */

/* See recipe_file.h. */

#include "cli/image/recipe_file.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/input.h"
#include "image/recipe.h"
#include "json/body.h"

#include <errno.h>
#include <string.h>

void recipe_words_done(struct recipe_words *words)
{
    strv_done(&words->pip);
    strv_done(&words->npm);
}

static json_t *list_of(const struct strv *words)
{
    json_t *list = json_array();
    for (size_t i = 0; i < words->count; i++)
        (void)json_array_append_new(list, json_string(words->items[i]));
    return list;
}

/* The file decides: package.json, another .json, else requirements.txt. */
static int read_file(const char *file, json_t **ret, struct err *err)
{
    cleanup_buf struct buf text;
    const char *slash = strrchr(file, '/');
    const char *base = slash ? slash + 1 : file;
    int r = input_read(file, (size_t)3 * RECIPE_TEXT_MAX, &text, err);
    if (r < 0)
        return r;
    if (str_has_suffix(base, ".json") && !str_eq(base, "package.json")) {
        r = json_run_parse(text.data ? text.data : "", text.len, ret, err);
        return r < 0 ? err_wrap(err, r, "%s", file) : 0;
    }
    json_t *content = json_stringn(text.data ? text.data : "", text.len);
    if (!content)
        return err_set(err, ERR_INVALID, EILSEQ, "%s is not text in UTF-8", file);
    *ret = json_pack("{s:s, s:o}", "language",
        str_eq(base, "package.json") ? "javascript" : "python", "requirements", content);
    return 0;
}

int recipe_file_read(
    const struct recipe_words *words, const char *file, json_t **ret, struct err *err)
{
    json_t *body = file ? NULL : json_object();
    int r = file ? read_file(file, &body, err) : 0;
    if (r < 0)
        return r;
    const char *language = words->language    ? words->language
                           : words->pip.count ? "python"
                           : words->npm.count ? "javascript"
                                              : NULL;
    if (language)
        (void)json_object_set_new(body, "language", json_string(language));
    if (words->name)
        (void)json_object_set_new(body, "name", json_string(words->name));
    json_t *packages = json_object();
    if (words->pip.count)
        (void)json_object_set_new(packages, "pip", list_of(&words->pip));
    if (words->npm.count)
        (void)json_object_set_new(packages, "npm", list_of(&words->npm));
    if (json_object_size(packages))
        (void)json_object_set(body, "packages", packages);
    json_decref(packages);
    *ret = body;
    return 0;
}
