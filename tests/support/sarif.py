"""A JSON schema of SARIF 2.1.0 for the parts that we write.

Written from the OASIS standard, section by section. The published schema is not used: most of its three
thousand lines describe parts that we do not write.
"""

from __future__ import annotations

_LOCATION = {  # 3.28, 3.29, 3.4, 3.30
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "additionalProperties": False,
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    # A URI reference of RFC 3986: printable ASCII without spaces.
                    "properties": {"uri": {"type": "string", "pattern": r"^[!-~]+$"}},
                },
                "region": {
                    "type": "object",
                    "required": ["startLine"],
                    "additionalProperties": False,
                    "properties": {
                        "startLine": {"type": "integer", "minimum": 1},
                        "startColumn": {"type": "integer", "minimum": 1},
                        "endColumn": {"type": "integer", "minimum": 2},
                    },
                },
            },
        }
    },
}
_FIX = {  # 3.55, 3.56, 3.57
    "type": "object",
    "required": ["artifactChanges"],
    "properties": {
        "description": {"type": "object", "required": ["text"]},
        "artifactChanges": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["artifactLocation", "replacements"],
                "properties": {
                    "replacements": {
                        "type": "array",
                        "minItems": 1,
                        "items": {"type": "object", "required": ["deletedRegion"]},
                    }
                },
            },
        },
    },
}
_RESULT = {  # 3.27
    "type": "object",
    "required": ["message"],
    "additionalProperties": False,
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": {
            "type": "object",
            "required": ["text"],
            "properties": {"text": {"type": "string"}},
        },
        "locations": {"type": "array", "items": _LOCATION},
        "fixes": {"type": "array", "items": _FIX},
        "properties": {"type": "object"},
    },
}
SARIF_SUBSET = {  # 3.13, 3.14, 3.18, 3.19, 3.20
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "name": {"type": "string", "minLength": 1},
                                    "version": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {"type": "object", "required": ["id"]},
                                    },
                                },
                            }
                        },
                    },
                    "invocations": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["executionSuccessful"],
                            "properties": {
                                "executionSuccessful": {"type": "boolean"},
                                "exitCode": {"type": "integer"},
                            },
                        },
                    },
                    "results": {"type": "array", "items": _RESULT},
                },
            },
        },
    },
}
