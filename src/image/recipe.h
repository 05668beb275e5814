/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an image is made from: the request of POST /v1/images, or the files of `hermes image
 * build`. */

#include "base/err.h"
#include "base/strv.h"
#include "image/store.h"
#include "lang/runtime.h"

#include <jansson.h>

enum { RECIPE_PACKAGES_MAX = 1000, RECIPE_TEXT_MAX = 1 << 20, RECIPE_PRELOAD_MAX = 64 };

struct image_recipe {
    const struct runtime *runtime;
    char *name; /* or NULL */
    struct strv packages;
    char *requirements; /* text of requirements.txt or package.json, or NULL */
    char *lock;         /* requirements with hashes, or package-lock.json; or NULL */
    char *setup_script; /* or NULL */
    char *base_name;    /* the image with a whole root that it builds upon, or NULL */
    json_t *env;        /* an object of strings, or NULL */
    /* The image that it builds upon; both NULL: none. */
    struct run_image *below;
    json_t *base;        /* facts of that image */
    struct strv preload; /* modules to import ahead; none: they are found by measurement */
};
void image_recipe_done(struct image_recipe *recipe); /* accepts a zeroed one */

/* Decodes {language, name?, packages?: {pip: [...], npm: [...]}, requirements?, lock?,
 * setup_script?, env?, preload?, base?}. ERR_INVALID names the field. */
int image_recipe_decode(const json_t *body, const struct runtime_registry *runtimes,
    struct image_recipe *ret, struct err *err);

/* The new image will have the layers of `base`, and one more. Of an image with many layers it
 * will have one with everything instead. */
int image_recipe_build_on(
    struct image_recipe *recipe, const struct image *base, struct err *err);

/* The same for base_name: the layers of a whole root, and one more. ERR_INVALID when the image
 * is none. */
int image_recipe_build_upon(
    struct image_recipe *recipe, const struct image *base, struct err *err);
bool image_recipe_is_upon(const struct image_recipe *recipe);

bool image_recipe_is_squashed(const struct image_recipe *recipe);

/* Makes a recipe from requirements.txt or package.json among a run's files. ERR_INVALID without
 * such a file. */
int image_recipe_of_files(
    const struct run_spec *spec, struct image_recipe *ret, struct err *err);

/* Whether images of this language can be built without a whole root below. */
bool image_is_built(const struct runtime *runtime);

/* Whether packages of this language can be named in a request. */
bool image_has_packages(const struct runtime *runtime);

/* "pip" or "npm": the installer of this language's packages; NULL: only a setup script
 * installs. */
const char *image_manager(const struct runtime *runtime);

/* Adds a package as it stands in a request. ERR_INVALID names the field. */
int image_recipe_add(
    struct image_recipe *recipe, const char *field, const json_t *package, struct err *err);

/* Where packages come from: settings of the operator. All may be "". */
struct image_registry {
    const char *pip_index;    /* URL; "": the installer's own */
    const char *npm_registry; /* URL; "": the installer's own */
    const char *hosts;        /* entries of a network policy, with commas between */
    const char *ca;           /* text of certificates */
    const char *installer;    /* of Python packages: image_installer() */
};

/* The installer of Python packages: INSTALLER_UV if it is wanted and on this host (`make
 * runtimes` puts it there), else INSTALLER_PIP. */
#define INSTALLER_UV "uv"
#define INSTALLER_PIP "pip"
const char *image_installer(bool wants_uv);

/* A SHA-256 in hexadecimal digits over everything that the image of an owner depends on. */
void image_recipe_digest(const struct image_recipe *recipe,
    const struct image_registry *registry, const char *owner, char ret[DIGEST_HEX + 1]);

/* Whether text is the name of a Python module, such as `matplotlib.pyplot`. */
bool image_is_module(const char *text);

/* Whether it will always give the same. */
bool image_recipe_is_locked(const struct image_recipe *recipe);

/* Whether it needs packages of a registry. */
bool image_recipe_needs_registry(const struct image_recipe *recipe);

/* Adds the files that the build box gets (runtimes/image-build/build.sh). */
void image_recipe_files(const struct image_recipe *recipe,
    const struct image_registry *registry, struct run_files *to);
