"""Steps of a project on other machines, by the Remote Execution API."""
