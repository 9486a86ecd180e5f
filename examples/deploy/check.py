#!/usr/bin/env python3
"""Checks manifests against the schemas of their kinds, as an API server does, also unknown keys.

    pip install jsonschema pyyaml kubernetes-validate
    examples/deploy/check.py --crd FILE.yaml ... -- MANIFEST.yaml ...

--crd: CustomResourceDefinitions, such as JobSet's config/components/crd/bases/*.yaml and Kubeflow
Trainer's manifests/base/crds/*.yaml. Kinds of Kubernetes itself are checked by kubernetes-validate.
"""

import argparse
import sys

import jsonschema
import kubernetes_validate
import yaml


def strict(schema):
    """The schema in JSON Schema's terms, where only keys that it names are allowed."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: strict(value) for key, value in schema.items()}
    if result.pop("x-kubernetes-int-or-string", False):
        result.pop("anyOf", None)
        result["type"] = ["integer", "string"]
    open_ended = result.pop("x-kubernetes-preserve-unknown-fields", False)
    if isinstance(result.get("properties"), dict) and not open_ended:
        result.setdefault("additionalProperties", False)
    return result


def kinds_of(files):
    kinds = {}
    for file in files:
        with open(file) as text:
            for document in yaml.safe_load_all(text):
                group, kind = document["spec"]["group"], document["spec"]["names"]["kind"]
                for version in document["spec"]["versions"]:
                    schema = strict(version["schema"]["openAPIV3Schema"])
                    schema["properties"]["metadata"] = {"type": "object"}
                    kinds[f"{group}/{version['name']}", kind] = schema
    return kinds


def problems_of(document, kinds):
    key = document["apiVersion"], document["kind"]
    if key in kinds:
        found = jsonschema.Draft7Validator(kinds[key]).iter_errors(document)
        return [f"{error.json_path}: {error.message[:200]}" for error in found]
    if "." in key[0].split("/")[0]:
        return [f"no schema of {key[0]} {key[1]}: give its --crd"]
    try:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [error.message]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--crd", nargs="*", default=[])
    parser.add_argument("manifests", nargs="+")
    arguments = parser.parse_args()
    kinds = kinds_of(arguments.crd)
    failed = False
    for file in arguments.manifests:
        with open(file) as text:
            for document in yaml.safe_load_all(text):
                problems = problems_of(document, kinds)
                failed = failed or bool(problems)
                print(f"{file}: {document['kind']}: {'; '.join(problems) or 'valid'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
