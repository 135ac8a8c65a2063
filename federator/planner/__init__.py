"""Where publications should flow when links are narrow (publish/subscribe network design).

Pure: no clock, socket, file or unseeded random number. Needs the extra ``planner``; importing this
package alone does not. Source: docs/planner.md.
"""
